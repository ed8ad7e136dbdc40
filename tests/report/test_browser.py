"""The page of all 73 tasks in headless Chromium: filters, sorting, values, links, keyboard, phone, print."""

import csv
import re

import pytest

from dr_q.report import build_report, write_report
from dr_q.report.numbers import number
from tests.report.browser import browser, needs_chromium, opened
from tests.report.synthetic import synthetic_results

pytestmark = needs_chromium
LARGEST = 5_000_000
"""Bytes of the page of all tasks."""
READY = 2_000
"""Milliseconds after which it must answer."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "report"
    results = synthetic_results()
    return write_report(build_report(results), results, out)


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def rows_of(report, name):
    with (report.parent / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def column(page, table, at):
    """Texts of a column of a table, the values without their intervals."""
    cells = page.locator(f"#table-{table} tbody tr > :nth-child({at + 1})")
    return cells.evaluate_all("cells => cells.map(cell => cell.firstChild ? cell.childNodes[0].textContent : '')")


def test_it_is_small_and_soon_ready(report, chromium):
    assert report.stat().st_size < LARGEST
    with opened(chromium, report) as page:
        assert page.evaluate("performance.getEntriesByName('dr-q-ready')[0].startTime") < READY
        assert page.locator("#curve-groups figure").count() == 73
        drawn = page.locator("#curve-groups svg.plot").count()
        assert 0 < drawn < 73, "what is far away is drawn later"


def test_tables_show_what_the_csv_files_have(report, chromium):
    with opened(chromium, report) as page:
        for suite in ("gym", "dmc-easy", "hbench-hand"):
            rows = [row for row in rows_of(report, f"scores-{suite}") if "/" in row["task"]]
            assert page.locator(f"#table-scores-{suite} tbody tr").count() == len(rows)
            shown = [text.replace("\u2212", "-") for text in column(page, f"scores-{suite}", 2)]
            assert shown == [number(float(row["ours dr.q"]), "score") for row in rows]
            verdicts = page.locator(f"#table-scores-{suite} tbody tr > :nth-child(4)").all_inner_texts()
            assert [text.split()[-1] for text in verdicts] == [row["ours dr.q verdict"] for row in rows]
        first = page.locator("#table-scores-gym tbody tr").first
        low, high = (rows_of(report, "scores-gym")[0][f"ours dr.q {end}"] for end in ("low", "high"))
        expected = f"[{number(float(low), 'score')}, {number(float(high), 'score')}]"
        assert first.locator(".interval").first.inner_text() == expected


def test_numbers_are_rounded_as_in_python(chromium):
    """Also those in the middle of two: Python takes the even digit, `toFixed` the larger number."""
    from importlib.resources import files

    values = [
        100.5,
        101.5,
        -100.5,
        10.25,
        10.75,
        -10.25,
        1.125,
        1.375,
        0.5,
        1.005,
        2.675,
        10.35,
        0.0625,
        0.1875,
        99.995,
    ]
    values += [x / 16 for x in range(-40, 4_000, 7)]
    kinds = ("score", "signed", "unit", "rate", "count")
    script = (files("dr_q.report") / "page" / "js" / "numbers.js").read_text()
    page = chromium.new_page()
    shown = page.evaluate(
        f"([values, kinds]) => {{ {script}; return kinds.map(k => values.map(x => number(x, k))); }}", [values, kinds]
    )
    page.close()
    for kind, texts in zip(kinds, shown, strict=True):
        assert [text.replace("\u2212", "-") for text in texts] == [number(x, kind) for x in values], kind


def test_filters_by_suite_algorithm_and_name(report, chromium):
    from playwright.sync_api import expect

    with opened(chromium, report) as page:
        for suite in ("gym", "dmc-hard", "dmc-visual", "hbench", "hbench-hand"):
            page.locator(f"#suite-filter input[value='{suite}']").uncheck()
        assert page.locator("#curve-groups figure").count() == 21
        assert page.locator("#score-tables table").count() == 1
        headers = page.locator("#table-scores-dmc-easy thead tr:last-child th")
        before = headers.count()
        page.locator("#paper-filter input[value='paper SimBa']").uncheck()
        page.locator("#preset-filter input[value='ours mr.q']").uncheck()
        assert headers.count() == before - 3, "a score, a verdict, and a published column"
        assert "mr.q" not in page.locator("#curve-legend").inner_text()
        page.locator("#search").fill("walker")
        expect(page.locator("#curve-groups figure")).to_have_count(3)
        tasks = page.locator("#table-scores-dmc-easy tbody th").all_inner_texts()
        assert tasks == ["dmc/walker-run", "dmc/walker-stand", "dmc/walker-walk"]
        page.locator("#search").fill("no such task")
        expect(page.locator("#curve-groups figure")).to_have_count(0)
        assert "Nothing is left" in page.locator("#curve-groups").inner_text()
        page.locator("#reset").click()
        assert page.locator("#curve-groups figure").count() == 73
        assert page.evaluate("location.hash") == ""


def test_sorts_by_click_and_by_key(report, chromium):
    values = [float(row["ours dr.q"]) for row in rows_of(report, "scores-hbench") if "/" in row["task"]]
    with opened(chromium, report) as page:
        button = page.locator(".sort[data-table='scores-hbench'][data-column='2']")
        button.click()
        header = page.locator("#table-scores-hbench thead tr:last-child th").nth(2)
        assert header.get_attribute("aria-sort") == "descending"
        assert column(page, "scores-hbench", 2) == [number(x, "score") for x in sorted(values, reverse=True)]
        page.keyboard.press("Enter")  # the focus has stayed
        assert header.get_attribute("aria-sort") == "ascending"
        assert column(page, "scores-hbench", 2) == [number(x, "score") for x in sorted(values)]
        page.keyboard.press("Enter")
        assert column(page, "scores-hbench", 2) == [number(x, "score") for x in values]


def test_a_link_brings_the_state_to_another_reader(report, chromium):
    from playwright.sync_api import expect

    with opened(chromium, report) as page:
        page.locator("#suite-filter input[value='dmc-easy']").uncheck()
        page.locator("#preset-filter input[value='ours no-infonce']").uncheck()
        page.locator("#search").fill("run")
        page.locator(".sort[data-table='scores-hbench'][data-column='2']").click()
        page.locator("#contents a", has_text="Speed").click()
        expect(page).to_have_url(re.compile("q=run"))
        state = page.evaluate("location.hash")
        tasks = page.locator("#score-tables tbody th").all_inner_texts()
        page.locator("#copy").click()
        expect(page.locator("#copied")).not_to_be_empty()  # the clipboard takes a moment
    with opened(chromium, report, state) as page:
        assert page.locator("#score-tables tbody th").all_inner_texts() == tasks
        assert page.locator("#search").input_value() == "run"
        assert not page.locator("#suite-filter input[value='dmc-easy']").is_checked()
        assert not page.locator("#preset-filter input[value='ours no-infonce']").is_checked()
        assert page.evaluate("document.activeElement.id") == "speed"
    with opened(chromium, report, "#suites=nonsense&hide=x&sort=y.1.up&sort=scores-gym.99.up&q=%3Cb%3E") as page:
        assert "Nothing is left" in page.locator("#curve-groups").inner_text()


def test_values_by_pointer_and_by_keyboard(report, chromium):
    last = [row for row in rows_of(report, "curves") if (row["task"], row["preset"]) == ("gym/Ant-v4", "dr.q")][-1]
    shown = number(float(last["mean"]), "score")
    with opened(chromium, report) as page:
        chart = page.locator("figure[data-task='gym/Ant-v4'] svg.plot")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None
        # The right end of the curves, left of the published scores.
        chart.hover(position={"x": box["width"] - 44, "y": 60})
        assert "1,000,000 steps, 10 seeds" in page.locator("#tip").inner_text()
        assert shown in page.locator("#tip").inner_text()
        chart.hover(position={"x": box["width"] - 6, "y": 60})
        assert "Published" in page.locator("#tip").inner_text()
        assert "8138 [7764, 8511]" in page.locator("#tip").inner_text()
        page.mouse.move(5, 5)
        assert page.locator("#tip").is_hidden()
        # Tab from the last control of the panel: links in the text, then the first chart.
        page.locator("#theme").focus()
        for _ in range(6):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('svg.plot')"):
                break
        assert page.locator("#tip").is_visible()
        assert "1,000,000 steps" in page.locator("#tip").inner_text()
        page.keyboard.press("ArrowLeft")
        assert "950,000 steps" in page.locator("#tip").inner_text()
        page.keyboard.press("Escape")
        assert page.locator("#tip").is_hidden()


def test_every_section_has_its_charts(report, chromium):
    with opened(chromium, report) as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # also those that are far away
        assert page.locator("#aggregate-charts svg.plot").count() == 4
        assert page.locator("#profile-charts svg.plot").count() == 6
        assert page.locator("#improvement-chart svg.plot").count() == 1
        assert page.locator("#ablation-charts svg.plot").count() == 6
        assert page.locator("#verdict-counts .bar").count() == 12, "two presets that the paper has, six suites"


def test_why_a_verdict_is_given_by_key_and_in_print(report, chromium):
    with opened(chromium, report) as page:
        page.set_viewport_size({"width": 1032, "height": 700})  # as wide as A4 across
        verdict, why = (page.locator(f"#table-scores-hbench-hand .{name}").first for name in ("verdict", "why"))
        reason = (why.text_content() or "").strip()
        assert re.search(r"\d", reason)
        assert not why.is_visible()
        verdict.focus()  # from far away: the page scrolls
        page.wait_for_timeout(200)
        assert page.locator("#tip").is_visible()
        assert reason in page.locator("#tip").inner_text()
        verdict.press("Escape")
        assert page.locator("#tip").is_hidden()
        page.emulate_media(media="print")
        assert why.is_visible()
        width = "document.querySelector('#table-scores-gym').getBoundingClientRect().width"
        widest = page.evaluate(width)
        page.evaluate("document.querySelectorAll('.why').forEach(why => { why.style.display = 'none'; })")
        assert widest <= page.evaluate(width) + 5, "reasons make no table wider"


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"), (360, "light")]
)
def test_no_sideways_scrolling_and_colours_of_the_system(report, chromium, width, scheme):
    with opened(chromium, report, viewport={"width": width, "height": 844}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
        assert dark == (scheme == "dark")
        assert page.locator("#filters").is_visible() == (width == 1280)
        if width < 1280:
            page.locator("#panel summary").click()
            assert page.locator("#search").is_visible()
            page.locator("#contents a", has_text="Normalised aggregates").click()
            assert page.locator("#search").is_hidden()
            page.locator("#aggregate-charts svg.plot").first.wait_for()
        else:
            page.locator("#theme").click()
            assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        # Labels stay inside their charts.
        outside = """() => [...document.querySelectorAll('svg.plot')].flatMap(plot => {
            const box = plot.getBoundingClientRect();
            return [...plot.querySelectorAll('text')].filter(text => {
                const inner = text.getBoundingClientRect();
                return inner.left < box.left - 2 || inner.right > box.right + 6;
            }).map(text => text.textContent);
        })"""
        assert page.evaluate(outside) == []


def test_print_has_every_chart_and_no_controls(report, chromium):
    with opened(chromium, report, "#suites=gym,dmc-hard") as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert page.locator("#curve-groups svg.plot").count() == 12
        assert page.locator(".side").is_hidden()
        assert page.locator("#print-state").inner_text() == "Filtered: suites: Gym MuJoCo, DMC hard."


def test_headings_and_names_are_there_for_those_who_listen(report, chromium):
    with opened(chromium, report) as page:
        assert page.locator("h1").count() == 1
        assert page.locator("main > section > h2:visible").count() == 10
        assert page.locator("#contents li").count() == 10, "references have a section only where there are some"
        unnamed = "[...document.querySelectorAll('svg.plot')].filter(x => !x.getAttribute('aria-label')).length"
        assert page.evaluate(unnamed) == 0
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
