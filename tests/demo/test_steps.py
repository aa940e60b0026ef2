from dismix.demo.steps import GENERATOR_SHARE, Steps


def test_one_bar_never_goes_back_and_ends_full():
    said = []
    steps = Steps({"a": 10.0, "b": 90.0}, lambda *words: said.append(words))
    inner = steps.inner("a", "drawing pictures")
    for done in (1, 5, 2, 10):
        inner("drawing pictures", done, 10)
    steps.begin("b", "training")
    steps.at("b", 2.0)
    places = [done for _, done, _ in said]
    assert places == sorted(places)
    assert said[0][0] == "demo | drawing pictures"
    assert said[-1] == ("demo | training", 100, 100)


def test_the_generator_and_the_runs_share_a_study(tmp_path):
    from tests.bench.study import tiny_study

    said = []
    study, bench = tiny_study(tmp_path)
    watch = Steps({"runs": 100.0}, lambda *words: said.append(words)).study("runs", study, bench)
    watch("benchmark | run 1 of 6: knee ce none seed 0, about 3 s left", 0, 6)
    assert said[-1] == ("demo | run 1 of 6: knee ce none seed 0", 0, 100)
    watch("generator teaching the guide", 2, 2)
    watch("generator training | loss 1", 1, 2)
    assert said[-1][1] == round(100 * GENERATOR_SHARE / 2)
    watch("training | stage loss", 1, 2)
    watch("benchmark | run 6 of 6: x", 6, 6)
    watch("generator training | loss 1", 2, 2)
    assert said[-1][1] == 100
