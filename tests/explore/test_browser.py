"""The page in a real browser: Debian's chromium, driven by selenium; skipped where absent."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.explore.conftest import png_bytes

from dismix.explore.server import listen, make_app
from dismix.explore.session import Session

pytest.importorskip("gradio")
pytest.importorskip("selenium")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("needs chromium and chromedriver", allow_module_level=True)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Start pages of sessions; all end with the module."""
    import uvicorn

    started: list[tuple[uvicorn.Server, threading.Thread, Any]] = []

    def start(session: Session, password: str | None = None) -> str:
        sock = listen("127.0.0.1", 0)
        app = make_app(session, tmp_path_factory.mktemp("served"), "127.0.0.1", password)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        started.append((server, thread, sock))
        # The socket is bound, and refuses until the server listens.
        until = time.monotonic() + 60
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.05)
        return f"127.0.0.1:{sock.getsockname()[1]}"

    yield start
    for server, thread, sock in started:
        server.should_exit = True
        thread.join(10)
        sock.close()


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def driver(downloads: Path) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--window-size=1500,1150"):  # fmt: skip
        options.add_argument(word)
    options.binary_location = str(CHROMIUM)
    options.add_experimental_option(
        "prefs",
        {
            "download.default_directory": str(downloads),
            "download.prompt_for_download": False,
            "profile.default_content_setting_values.automatic_downloads": 1,
        },
    )
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield browser
    browser.quit()


class Person:
    """Somebody in front of the page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def see(self, css: str, text: str = "", seconds: float = 15) -> Any:
        """Wait for an element that holds a text, and return it."""
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for element in self.driver.find_elements("css selector", css):
                try:
                    if text in element.get_attribute("textContent"):
                        return element
                except StaleElementReferenceException:
                    continue
            time.sleep(0.05)
        raise AssertionError(f"nothing at {css} says {text!r}")

    def made(self) -> str:
        """Return the made picture."""
        return str(self.see("#mix-view .dx-card.made img").get_attribute("src"))

    def settled(self, seconds: float = 1.0) -> str:
        """Return the made picture once it has been the same for a while: uploads draw twice."""
        shown, since = self.made(), time.monotonic()
        while time.monotonic() - since < seconds:
            time.sleep(0.05)
            now = self.made()
            if now != shown:
                shown, since = now, time.monotonic()
        return shown

    def until_made_differs(self, before: str) -> float:
        """Wait until another picture is shown; return the seconds it took."""
        start = time.perf_counter()
        while time.perf_counter() - start < 15:
            if self.driver.execute_script(
                "return document.querySelector('#mix-view .dx-card.made img')?.src"
            ) not in (None, before):
                return time.perf_counter() - start
            time.sleep(0.01)
        raise AssertionError("the made picture never changed")

    def set_slider(self, name: str, value: int) -> None:
        """Move a slider as a hand would."""
        self.see(f"#{name} input[type=range]")
        self.driver.execute_script(
            "const s = document.querySelector(arguments[0]);"
            "Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')"
            ".set.call(s, arguments[1]);"
            "s.dispatchEvent(new Event('input', {bubbles: true}));"
            "s.dispatchEvent(new PointerEvent('pointerup', {bubbles: true}));",
            f"#{name} input[type=range]", value,
        )  # fmt: skip

    def upload(self, role: str, path: Path) -> None:
        """Give a file to one of the upload buttons."""
        field = self.driver.execute_script(
            "const e = document.getElementById(arguments[0]);"
            "return (e.matches('button') ? e.parentElement : e)"
            ".querySelector('input[type=file]') || e.previousElementSibling;",
            f"{role}-file",
        )
        field.send_keys(str(path))

    def open_tab(self, title: str) -> None:
        """Click on a tab."""
        for tab in self.driver.find_elements("css selector", "button[role=tab]"):
            if tab.text == title:
                tab.click()
                return
        raise AssertionError(f"no tab '{title}'")


def wait_for(folder: Path, pattern: str) -> Path:
    """Return a file that is being saved, once it is whole."""
    for _ in range(200):
        if found := [*folder.glob(pattern)]:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"no {pattern} in {[*folder.iterdir()]}")


def requests(driver: Any) -> list[str]:
    """Return all addresses the browser has asked for."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events
            if e["method"] == "Network.requestWillBeSent"]  # fmt: skip
    return [url for url in sent if not url.startswith(("data:", "blob:"))]


def test_load_move_upload_download(
    session: Session, serving: Callable[..., str], driver: Any, downloads: Path, tmp_path: Path
) -> None:
    address = serving(session)
    driver.get(f"http://{address}/")
    person = Person(driver)
    person.see(".dx-box.warn", "not for diagnosis")
    before = person.made()
    person.set_slider("severity", 90)
    person.until_made_differs(before)

    files = {
        "renamed.png": b"these are words\n" * 30, "empty.png": b"", "cut.png": png_bytes()[:300],
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for name, said in (
        ("renamed.png", "The file is not an image that can be read"),
        ("cut.png", "The image is cut short"),
    ):
        person.upload("start", tmp_path / name)
        person.see("#start-said .error", said)
    (tmp_path / "good.png").write_bytes(png_bytes(8))
    before = person.made()
    person.upload("start", tmp_path / "good.png")
    person.see("#start-card", "nobody graded it")
    person.until_made_differs(before)

    for link in driver.find_elements("css selector", "#mix-view .dx-card.made a.dx-save"):
        driver.execute_script("arguments[0].click()", link)
    picture, origin = wait_for(downloads, "dismix_*.png"), wait_for(downloads, "dismix_*.json")
    note = json.loads(origin.read_text())
    assert note["recipe"]["severity"] == 0.9
    assert note["recipe"]["start"].startswith("upload/")
    assert "good" not in origin.read_text()
    with Image.open(picture) as image:
        assert image.size == (32, 32)
    outside = [url for url in requests(driver) if f"//{address}/" not in url]
    assert outside == []
    assert [e for e in driver.get_log("browser") if e["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_no_move_is_lost(session: Session, serving: Callable[..., str], driver: Any) -> None:
    address = serving(session)
    person = Person(driver)
    for _ in range(8):
        driver.get(f"http://{address}/")
        before = person.made()
        person.set_slider("severity", 100)
        person.until_made_differs(before)
        before = person.made()
        person.set_slider("appearance", 35)
        person.until_made_differs(before)
        assert person.made() != before


@pytest.mark.slow
def test_every_tab(session: Session, serving: Callable[..., str], driver: Any) -> None:
    address = serving(session)
    requests(driver)
    driver.get(f"http://{address}/")
    person = Person(driver)
    before = person.made()
    person.open_tab("Film strip")
    person.see("#strip-view", "The same picture at every grade")
    person.open_tab("Swap severity")
    person.see("#swap-view", "With the severity of the partner")
    person.open_tab("Four policies")
    person.see("#policies-view", "Generate and mix")
    person.open_tab("Gallery")
    person.see("#gallery button img")
    shown = driver.find_elements("css selector", "#gallery button.thumbnail-item")
    assert len(shown) == 45
    shown[3].click()
    name = session.subject(session.library.browse()[3]).name
    person.see("#start-card", name)
    person.open_tab("Codebook")
    person.see("#codebook-view", "Appearance codes", 60)
    person.see("#code-view", "tinted orange")
    person.open_tab("Mix")
    person.until_made_differs(before)
    person.see("#towards label", "a grade").click()
    person.see("#rank")
    assert [url for url in requests(driver) if f"//{address}/" not in url] == []
    assert [e for e in driver.get_log("browser") if e["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_huge_and_empty_uploads_and_uploads_alone(
    bare: Callable[..., Session], serving: Callable[..., str], driver: Any, tmp_path: Path
) -> None:
    driver.get(f"http://{serving(bare(3, 3))}/")
    person = Person(driver)
    person.see("#mix-view", "Choose a picture or upload one")
    person.see(".dx-title", "only uploads can be shown")
    Image.new("L", (9000, 9000)).save(tmp_path / "huge.png")
    person.upload("start", tmp_path / "huge.png")
    person.see("#start-said .error", "9000 x 9000 pixels is over the limit")
    (tmp_path / "heavy.png").write_bytes(bytes(33 * 2**20))
    person.upload("start", tmp_path / "heavy.png")
    person.see("body", "maximum allowed size")
    (tmp_path / "empty.png").write_bytes(b"")
    person.upload("start", tmp_path / "empty.png")
    person.see("#start-said .error", "The file is empty; choose a file with a picture in it")
    assert "Choose a picture" in person.see("#mix-view").text
    for role in ("start", "partner"):
        (tmp_path / f"{role}.png").write_bytes(png_bytes(len(role), (60, 60, 3)))
        person.upload(role, tmp_path / f"{role}.png")
        person.see(f"#{role}-card", "nobody graded it")
    before = person.settled()
    person.set_slider("appearance", 80)
    person.until_made_differs(before)


@pytest.mark.slow
def test_password(session: Session, serving: Callable[..., str], driver: Any) -> None:
    address = serving(session, "correct horse battery")
    driver.get(f"http://{address}/")
    assert "DisMix explorer" not in driver.page_source
    # A name in the address stands for what people type into the browser's own question.
    driver.get(f"http://me:correct%20horse%20battery@{address}/config")
    driver.get(f"http://{address}/")
    person = Person(driver)
    before = person.made()
    person.set_slider("severity", 95)
    person.until_made_differs(before)
