"""Report and dashboard in a real headless Chromium: pages load, figures are drawn, the console stays silent."""

import importlib.util
import json
import shutil
import threading
import time

import pytest
from conftest import need
from planted import CONFIRMATIONS, planted_study, planted_trials
from test_report_figures import GROUPED

from resnas.analysis import analyse
from resnas.dashboard import address, exposure_warning, is_loopback, open_server, publish
from resnas.errors import InputError
from resnas.report import Material, note, study_figures, write_report
from resnas.search import existing_study, load_trials

DESKTOP, PHONE = (1280, 900), (390, 844)
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CHROMIUM, CHROMEDRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.fixture
def browse(tmp_path):
    """Return a function that opens an address in a window of a size."""
    need("chromium and chromedriver", bool(CHROMIUM and CHROMEDRIVER))
    need("selenium", importlib.util.find_spec("selenium") is not None)
    from selenium import webdriver

    opened = []

    def open_page(url: str, size: tuple[int, int] = DESKTOP):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={tmp_path / str(len(opened))}", "--window-size={},{}".format(*size)):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(CHROMEDRIVER))
        opened.append(driver)
        if size == PHONE:
            metrics = {"width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 2, "mobile": True}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(url)
        return driver

    yield open_page
    for driver in opened:
        driver.quit()


def wait_for(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "the page did not get there"
        time.sleep(0.2)
    return found


def errors(driver) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_report_opens_offline_with_figures_and_without_errors(finished_study, browse, size):
    trials = load_trials(finished_study)
    rankings = analyse(finished_study, trials)
    path = write_report(Material(finished_study, trials), rankings)
    driver = browse(path.as_uri(), size)
    expected = len(study_figures(Material(finished_study, trials), rankings))
    wait_for(lambda: len(driver.find_elements("css selector", ".js-plotly-plot .main-svg")) >= expected)
    assert len(driver.find_elements("css selector", "table tr")) > 4
    assert errors(driver) == []
    overflow = driver.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0
    assert driver.execute_script("return getComputedStyle(document.body).userSelect") != "none"


OVERLAPS = """
return Array.from(document.querySelectorAll('figure .js-plotly-plot')).filter(plot => {
  const caption = plot.closest('figure').querySelector('figcaption').getBoundingClientRect();
  const drawn = plot.querySelector('.main-svg').getBoundingClientRect();
  return drawn.bottom > caption.top + 1 || drawn.right > document.documentElement.clientWidth + 1;
}).map(plot => plot.id)
"""
CUT_LEGENDS = """
return Array.from(document.querySelectorAll('.js-plotly-plot .legend .scrollbar'))
  .filter(bar => bar.getBoundingClientRect().height > 0).map(bar => bar.closest('.js-plotly-plot').id)
"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_report_with_everything_in_it_fits_the_window(tmp_path, browse, size):
    """With several objectives, confirmations, failures, a ranking: nothing overlaps, no legend is cut."""
    study = planted_study(tmp_path, "[val_loss, dilution]")
    trials = planted_trials(study, 40)
    (study.results_folder / "confirm.json").write_text(json.dumps(CONFIRMATIONS))
    path = write_report(Material(study, trials), [GROUPED])
    driver = browse(path.as_uri(), size)
    expected = len(study_figures(Material(study, trials), [GROUPED]))
    wait_for(lambda: len(driver.find_elements("css selector", ".js-plotly-plot .main-svg")) >= expected)
    time.sleep(1)  # figures take their final size after they are drawn
    assert errors(driver) == []
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert driver.execute_script(overflow) <= 0
    assert driver.execute_script(OVERLAPS) == []
    assert driver.execute_script(CUT_LEGENDS) == []
    selected = driver.execute_script(
        "getSelection().selectAllChildren(document.body); return getSelection().toString()"
    )
    for words in ("What was confirmed", "the best of as many random draws", "report/best-so-far-val_loss.csv"):
        assert words in selected


@pytest.fixture
def served(finished_study):
    trials = load_trials(finished_study)
    rankings = analyse(finished_study, trials)
    optuna_study = existing_study(finished_study)
    material = Material(finished_study, trials)
    figures = study_figures(material, rankings)
    publish(finished_study, optuna_study, {one.id: one.figure for one in figures}, note(material, rankings))
    with open_server(finished_study, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def text_of(driver) -> str:
    return driver.find_element("tag name", "body").text


def test_the_dashboard_shows_trials_figures_and_note(finished_study, browse, served):
    url = address(finished_study, "127.0.0.1", served)
    trials = load_trials(finished_study)
    drawn = {one.id.replace("-", " ") for one in study_figures(Material(finished_study, trials), [])}
    driver = browse(url)
    wait_for(lambda: drawn <= {title.text for title in driver.find_elements("css selector", "text.gtitle")})
    assert errors(driver) == []
    driver.get(f"{url}/trials")
    wait_for(lambda: f"{len(trials)} Trials" in text_of(driver))
    for trial in trials:
        wait_for(lambda name=f"Trial {trial.number}": name in text_of(driver))
    assert text_of(driver).count("Complete") >= len(trials) == finished_study.search.n_trials
    assert errors(driver) == []
    driver.get(f"{url}/note")
    wait_for(lambda: "The best of 4 architectures is" in text_of(driver))
    assert "no reliable ranking" in text_of(driver)
    assert errors(driver) == []


def test_publishing_again_replaces_figures(finished_study, served):
    study = existing_study(finished_study)
    count = len(study._storage.get_study_system_attrs(study._study_id))
    trials = load_trials(finished_study)
    figures = study_figures(Material(finished_study, trials), [])
    publish(finished_study, study, {one.id: one.figure for one in figures}, "again")
    assert len(study._storage.get_study_system_attrs(study._study_id)) == count


def test_a_port_in_use_is_one_sentence(finished_study, served):
    with pytest.raises(InputError, match=rf"port {served} on 127.0.0.1 is in use"):
        open_server(finished_study, port=served)


def test_other_hosts_are_refused_and_exposure_is_warned_of(finished_study, served):
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"http://127.0.0.1:{served}/api/studies", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 403
    refused.value.close()
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert exposure_warning("127.0.0.1", 80) is None
    assert "ssh" in (exposure_warning("0.0.0.0", 8080) or "")
