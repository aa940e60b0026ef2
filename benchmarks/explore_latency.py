"""How long the explorer takes for one slider move: mixing, decoding, the page's HTML.

    python benchmarks/explore_latency.py                        # tiny, 64 px, CPU
    python benchmarks/explore_latency.py --run runs/knees --grader runs/grader
    python benchmarks/explore_latency.py --arch vq-f8 --size 256 --device cuda --ranks 5
    python benchmarks/explore_latency.py --run runs/knees --http   # through Gradio, as browsers do

Without `--run` an untrained generator of the shape is timed on random pictures: weights do not
change the time. The goals are 0.5 s on two CPU cores at 64 px and 0.1 s on a GPU at 256 px.
"""

import argparse
import io
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from dismix.explore.desk import TABS, TOWARDS, Desk
from dismix.explore.library import without_data
from dismix.explore.opening import open_session
from dismix.explore.session import Session
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import Generator
from dismix.provenance import hardware


def random_session(arguments: argparse.Namespace) -> tuple[Session, str, str]:
    """Return a session of an untrained generator and two uploads."""
    config = GeneratorConfig(
        num_ranks=arguments.ranks, arch=arguments.arch, image_size=arguments.size,
        in_channels=arguments.channels,
    )  # fmt: skip
    model = Generator.seeded(config, 0).to(arguments.device).eval()
    names = [str(rank) for rank in range(arguments.ranks)]
    session = Session(model, without_data(names, model.image_size, model.in_channels))
    rng = np.random.default_rng(0)
    keys = []
    for _ in range(2):
        buffer = io.BytesIO()
        pixels = rng.integers(0, 255, (arguments.size or 64, arguments.size or 64), np.uint8)
        Image.fromarray(pixels).save(buffer, "PNG")
        keys.append(session.upload(buffer.getvalue()).key)
    return session, keys[0], keys[1]


def real_session(arguments: argparse.Namespace) -> tuple[Session, str, str]:
    """Return a session of a run and two of its images."""
    session = open_session(arguments.run, grader=arguments.grader, device=arguments.device)
    keys = session.library.browse(most=2)
    if len(keys) < 2:
        raise SystemExit("the run's images are not here; leave --run out")
    return session, keys[0], keys[1]


def timed(work: Callable[[int], object], moves: int) -> list[float]:
    """Return seconds of each of ``moves`` calls, after two to warm up; no value comes twice."""
    for value in range(2):
        work(value)
    seconds = []
    for value in range(2, moves + 2):
        start = time.perf_counter()
        work(value)
        seconds.append(time.perf_counter() - start)
    return seconds


def tell(name: str, seconds: list[float]) -> dict[str, float]:
    """Print and return median and the slowest of twenty."""
    middle, slow = statistics.median(seconds), float(np.quantile(seconds, 0.95))
    print(f"{name:<28} {1000 * middle:8.1f} ms median {1000 * slow:8.1f} ms at 95 %")
    return {"median_s": middle, "p95_s": slow}


def over_http(session: Session, moves: int) -> list[float]:
    """Time slider moves as a browser sends them."""
    import httpx
    import uvicorn

    from dismix.explore.server import listen, make_app

    with listen("127.0.0.1", 0) as sock, tempfile.TemporaryDirectory() as folder:
        app = make_app(session, Path(folder), "127.0.0.1", None)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with httpx.Client(base_url=address, timeout=60) as client:
            seconds = timed(_mover(client), moves)
        server.should_exit = True
        thread.join(10)
    return seconds


def _mover(client: Any) -> Callable[[int], object]:
    config = client.get("/config").json()
    slider = next(c["id"] for c in config["components"] if c["props"].get("elem_id") == "severity")
    event = next(
        d
        for d in config["dependencies"]
        if slider in d["inputs"] and [slider, "input"] in d["targets"]
    )

    def move(value: int) -> None:
        # States stay on the server: it fills in the pictures it began with.
        data = [None, None, None, TOWARDS[0], 1, value % 101, 0, 50]
        answer = client.post(
            "/gradio_api/run/predict",
            json={"data": data, "fn_index": event["id"], "session_hash": "latency"},
        )
        if "Made picture" not in answer.text:
            raise SystemExit(answer.text[:300])

    return move


def main() -> None:
    """Time every tab."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--grader", type=Path)
    parser.add_argument("--arch", default="tiny")
    parser.add_argument("--size", type=int)
    parser.add_argument("--ranks", type=int, default=5)
    parser.add_argument("--channels", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--moves", type=int, default=50)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    made = random_session(arguments) if arguments.run is None else real_session(arguments)
    session, start, partner = made
    model = session.model
    where = hardware() if arguments.device != "cpu" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{model.config.arch}, {model.image_size} px, {model.in_channels} channels, {where}")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(session, Path(folder))
        for tab in TABS:
            found[tab] = tell(tab, timed(
                lambda value, tab=tab: desk.render(
                    tab, start, partner, TOWARDS[0], 1, (7 * value) % 101, (3 * value) % 101,
                    1 + value % 99,
                ), arguments.moves,
            ))  # fmt: skip
    if arguments.http:
        found["http"] = tell("mix through Gradio", over_http(session, arguments.moves))
    if arguments.json:
        arguments.json.write_text(json.dumps({"where": where, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
