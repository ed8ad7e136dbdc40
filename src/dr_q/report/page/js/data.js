// The data of the page: everything it shows is in the JSON next to this script.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const DASHES = ["", "7 3", "2 2", "8 3 2 3", "12 4", "4 2 1 2", "1 3", "6 2 2 2 2 2", "3 5"];
const SVG = "http://www.w3.org/2000/svg";
const series = new Map(data.series.map((s) => [s.key, s]));
const presetByName = new Map(data.series.filter((s) => s.ours).map((s) => [s.name, s]));
const suiteTitle = new Map(data.suites.map((s) => [s.name, s.title]));
const VERDICTS = ["above", "inside", "below"];
const MARK = { above: "▲ ", inside: "● ", below: "▼ " };
