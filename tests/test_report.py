"""The report: what it holds, and how it behaves in a browser."""

import base64
import gzip
import json
import re
import shutil
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from flywheel.cli import flywheel
from flywheel.evaluation.held_out import freeze
from flywheel.evaluation.results import compare
from flywheel.files import write_text
from flywheel.records import Rollout
from flywheel.registry import Registry
from flywheel.report.commands import _Viewer
from flywheel.report.page import render
from flywheel.store import TraceStore
from flywheel.workspace import ROLES, Workspace
from train.dataset import write_datasets

from .adapters import make_adapter

HOSTILE = "</script><img src=x onerror=alert(1)>"


def _wrong(rollout: Rollout) -> Rollout:
    verdict = rollout.verdict.model_copy(update={"match": False, "exact_match": False})
    return rollout.model_copy(update={"verdict": verdict, "answer": HOSTILE})


@pytest.fixture(scope="module")
def workspace(traces: list[Rollout], qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """With traces, rows, adapters, an evaluation in which half went wrong, and a promotion."""
    made = Workspace.create(tmp_path_factory.mktemp("report") / "my wheel", f'[engine]\nmodel = "{qwen2}"\n'
                            '[team]\nhistory = "full"\nprompt = "compact"\n')  # fmt: skip
    with TraceStore(made.traces) as store:
        for rollout in traces:
            store.add(rollout)
    write_datasets(made)
    for seed, role in enumerate(ROLES):
        make_adapter(made.folder / "adapters", qwen2, role, 1, seed)
    half = [rollout if place % 2 else _wrong(rollout) for place, rollout in enumerate(traces)]
    results: dict[str, Sequence[Rollout]] = {"base": [_wrong(one) for one in traces], "candidate": half}
    evaluation = compare(results, [("base", "candidate")], "2026-01-01")
    write_text(made.reports / "first" / "evaluation.json", evaluation.as_json())
    with TraceStore(made.reports / "first" / "candidate.sqlite") as store:
        for rollout in half:
            store.add(rollout)
    freeze(made, [rollout.question for rollout in traces])
    Registry(made).force({"supervisor": "supervisor@1"}, f"because {HOSTILE}")
    return made


@pytest.fixture(scope="module")
def page(workspace: Workspace) -> Path:
    """The report, written by the command."""
    result = CliRunner().invoke(flywheel, ["-w", str(workspace.folder), "report"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    path = workspace.reports / "report.html"
    assert str(path) in result.output.replace("\n", "")
    return path


def _unpacked(text: str, id: str) -> Any:
    found = re.search(rf'id="{id}">([^<]*)</script>', text)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_everything_stands_in_one_file(page: Path, traces: list[Rollout]) -> None:
    text = page.read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", text), "nothing is fetched"
    for expected in ("candidate is better", "supervisor@1", "Where failures began", "From calls to training rows"):
        assert expected in text
    assert HOSTILE not in text
    index = _unpacked(text, "index")
    assert len(index) == 2 * len(traces)
    assert {row["source"] for row in index} == {"round 0", "first: candidate"}
    assert sum(not row["right"] for row in index) == 8 and {row["answer"] for row in index} >= {HOSTILE}
    assert all(row["origin"] for row in index if not row["right"])
    detail = _unpacked(text, "chunk-0")[0]
    assert detail["runs"][0]["role"] == "supervisor"
    calls = [call for run in detail["runs"] for call in run["calls"]]
    assert {call["trained"] for call in calls} == {True} and calls[0]["system"]


def test_an_empty_workspace_has_a_report_too(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "empty")
    assert render(workspace, tmp_path / "out.html").rollouts == 0
    assert "Rollouts: 0" in (tmp_path / "out.html").read_text()


def test_what_is_damaged_is_named_and_left_out(workspace: Workspace, tmp_path: Path) -> None:
    copy = Workspace(Path(shutil.copytree(workspace.folder, tmp_path / "copy")))
    shutil.copytree(copy.reports / "first", copy.reports / "my-font")
    (copy.adapter("page_search@1") / "adapter_model.safetensors").write_bytes(b"x")
    (copy.reports / "first" / "candidate.sqlite").write_bytes(b"no database" * 100)
    (copy.folder / "turns").mkdir()
    (copy.folder / "turns" / "0.json").write_text("{")
    copy.dataset("wiki_search").write_text('{"call": ')
    made = render(copy, tmp_path / "out.html")
    assert len(made.left_out) == 4
    text = (tmp_path / "out.html").read_text()
    assert text.count("Left out: ") == 4
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(picture.replace("<svg", '<svg xmlns:xlink="http://www.w3.org/1999/xlink"', 1))
    assert "my-font" in text

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Viewer(copy).handler())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (copy.folder / "adapters" / "ledger.jsonl").write_text("{}\n")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}")
    assert b"ledger.jsonl:1 is damaged" in refused.value.read()
    server.shutdown()
    server.server_close()


def test_the_live_view_shows_what_is_new(workspace: Workspace, traces: list[Rollout]) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Viewer(workspace).handler())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    assert len(_unpacked(urllib.request.urlopen(url).read().decode(), "index")) == 32
    with TraceStore(workspace.traces) as store:
        store.add(traces[0].model_copy(update={"id": "r9/new/0", "round": 9}))
    assert len(_unpacked(urllib.request.urlopen(url).read().decode(), "index")) == 33
    elsewhere = urllib.request.Request(url, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(elsewhere)
    server.shutdown()
    server.server_close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """Headless Chromium, where the machine has it."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("needs chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update",
                 "disable-sync", "no-first-run", "window-size=1200,1000", f"user-data-dir={tmp_path}"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield driver
    assert driver.get_log("browser") == [], "nothing is said on the console"
    driver.quit()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rollouts_are_found_and_opened(browser: Any, page: Path, scheme: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait

    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(page.as_uri())
    wait = WebDriverWait(browser, 20)
    wait.until(lambda driver: driver.execute_script("return document.body.dataset.ready") == "true")
    count = browser.find_element(By.ID, "count")
    assert count.text == "32 of 32 rollouts"
    Select(browser.find_element(By.ID, "verdict")).select_by_visible_text("wrong")
    wait.until(lambda _: count.text == "8 of 32 rollouts")
    browser.find_element(By.ID, "list").send_keys(Keys.ARROW_DOWN)
    tree = browser.find_element(By.ID, "tree")
    wait.until(lambda _: HOSTILE in tree.text)
    assert "lost at supervisor" in tree.text and "trained on" in tree.text
    runs = tree.find_elements(By.CSS_SELECTOR, "details.run")
    assert len(runs) > 2 and runs[1].get_attribute("open")
    runs[1].find_element(By.TAG_NAME, "summary").click()
    assert not runs[1].get_attribute("open")
    browser.find_element(By.ID, "search").send_keys("nothing has these words")
    wait.until(lambda _: count.text == "0 of 32 rollouts")
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 24, 28)")
    wide = browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert wide, "nothing sticks out"
