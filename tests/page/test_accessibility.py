"""What axe finds in each view, at both widths and in both themes: nothing that is serious."""

import os
import pathlib
import shutil

import pytest

from processes import PROJECT, install_npm_packages
from test_views import VIEWS

pytestmark = pytest.mark.real("chromium")

TOOLS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")) / "axe"
RUN = """() => {
    window.found = null;
    axe.run({ resultTypes: ["violations"] }).then(({ violations }) => { window.found = violations; }, (error) => { window.found = String(error); });
}"""


@pytest.fixture(scope="module")
def axe():
    shutil.copytree(pathlib.Path(__file__).parent / "axe", TOOLS, dirs_exist_ok=True)
    install_npm_packages(TOOLS)
    return (TOOLS / "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_no_view_has_a_serious_finding(loaded, window, axe, width, scheme):
    one = window(loaded, color_scheme=scheme)
    one.page.set_viewport_size({"width": width, "height": 900})
    serious = []
    for view, (texts, _) in VIEWS.items():
        one.open(view)
        one.sees(texts[0])
        one.page.evaluate(axe)
        one.page.evaluate(RUN)
        one.until(lambda: one.page.evaluate("window.found !== null"), "axe is done")
        for found in one.page.evaluate("window.found"):
            if found["impact"] in ("serious", "critical"):
                serious.append((view, found["id"], found["help"], [node["html"][:160] for node in found["nodes"][:4]]))
    assert serious == [], serious
    one.check()
