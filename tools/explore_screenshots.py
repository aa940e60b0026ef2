"""Draw the pictures of docs/explore.md: `python tools/explore_screenshots.py RUN GRADER`.

Drives Debian's chromium through the page of a run on phantoms and keeps small JPEG files.
"""

import argparse
import io
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
OUTPUT, WIDTH = ROOT / "docs" / "assets" / "explore", 1200


def main() -> None:
    """Serve the page, walk through it, save what is seen."""
    import uvicorn
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from tests.explore.test_browser import Person

    from dismix.explore.opening import open_session
    from dismix.explore.server import listen, make_app

    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("grader", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.binary_location = "/usr/bin/chromium"
    session = open_session(arguments.run, grader=arguments.grader)
    with listen("127.0.0.1", 0) as sock, tempfile.TemporaryDirectory() as folder:
        app = make_app(session, Path(folder), "127.0.0.1", None)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True).start()
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            driver.get(f"http://127.0.0.1:{sock.getsockname()[1]}/")
            walk(Person(driver), driver, arguments.output)
        finally:
            driver.quit()
            server.should_exit = True


def walk(person: Any, driver: Any, output: Path) -> None:
    """Visit every tab; a file that is no picture comes last."""
    before = person.made()
    person.set_slider("severity", 100)
    person.until_made_differs(before)
    before = person.made()
    person.set_slider("appearance", 35)
    person.until_made_differs(before)
    shoot(driver, output / "mix.jpg", 1330)
    for title, css, text, height in (
        ("Film strip", "#strip-view", "every grade", 900),
        ("Swap severity", "#swap-view", "exchanged", 1330),
        ("Four policies", "#policies-view", "Generate and mix", 1130),
        ("Gallery", "#gallery button img", "", 980),
        ("Codebook", "#codebook-view", "Appearance codes", 1330),
    ):
        person.open_tab(title)
        person.see(css, text, 60)
        time.sleep(1.5)
        if title == "Codebook":
            hover(driver)
        shoot(driver, output / f"{title.split()[0].lower()}.jpg", height)
    person.open_tab("Mix")
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder) / "renamed.png"
        bad.write_text("these are words\n" * 30)
        person.upload("start", bad)
        person.see("#start-said .error", "not an image")
    shoot(driver, output / "bad_upload.jpg", 960)


def hover(driver: Any) -> None:
    """Point at a dot of the second map."""
    from selenium.webdriver import ActionChains

    dots = driver.find_elements("css selector", ".dx-book:last-child .dx-pt circle")
    ActionChains(driver).move_to_element(dots[len(dots) // 3]).perform()
    time.sleep(0.3)


def shoot(driver: Any, path: Path, height: int) -> None:
    """Save the window as a JPEG below 150 kB."""
    driver.set_window_size(1500, height)
    time.sleep(0.6)
    with Image.open(io.BytesIO(driver.get_screenshot_as_png())) as shot:
        small = shot.convert("RGB").resize((WIDTH, round(shot.height * WIDTH / shot.width)))
    path.parent.mkdir(parents=True, exist_ok=True)
    for quality in (88, 80, 70, 60):
        small.save(path, quality=quality, optimize=True)
        if path.stat().st_size < 140_000:
            break
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
