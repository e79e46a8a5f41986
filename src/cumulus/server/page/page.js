// The page of a Cumulus server. Its grids are Perspective's. What a selection of a cube is, the server says: the page
// only tells it what was clicked, and shows what it answers.
import perspective from "./perspective.js";

const $ = id => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => (dark.matches ? "Pro Dark" : "Pro Light");
const counted = new Intl.NumberFormat("en");
const root = new URL("../../", import.meta.url);

window.violations = [];  // of the policy; there is to be none
document.addEventListener("securitypolicyviolation", event => window.violations.push(event.violatedDirective));

function make(tag, text, kind, clicked) {
  const made = document.createElement(tag);
  made.textContent = text ?? "";
  if (kind) made.className = kind;
  if (clicked) made.onclick = clicked;
  return made;
}

function trouble(words) {
  $("trouble").hidden = !words;
  $("trouble").textContent = words ? [words.error, words.hint].filter(Boolean).join("\n") : "";
}

function offer(select, names, chosen) {
  if ([...select.options].map(each => each.value).join("\n") !== names.join("\n"))
    select.replaceChildren(...names.map(name => new Option(name)));
  if (names.includes(chosen)) select.value = chosen;
}

function table(columns, rows) {
  const made = document.createElement("table"), head = made.createTHead().insertRow(), body = made.createTBody();
  for (const column of columns) head.append(make("th", column));
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row)
      line.append(typeof value === "number" ? make("td", counted.format(value), "number") : make("td", value));
  }
  return made;
}

// A socket on which Perspective's messages are bytes and the page's own are texts, and the grid that it feeds.
class Grid {
  constructor(path, element, told) {
    this.element = element;
    this.listeners = {};
    const address = new URL(path, root);
    address.protocol = address.protocol.replace("http", "ws");
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.ready = new Promise(done => { this.socket.onopen = done; });
    this.socket.onmessage = ({data}) => {
      if (typeof data === "string") told(JSON.parse(data));
      else this.tell("msg:custom", {type: "binary_msg", client_id: this.client}, [{buffer: data}]);
    };
    dark.addEventListener("change", () => this.viewer?.restore({theme: theme()}));
  }

  tell(name, ...words) {
    for (const listener of this.listeners[name] ?? []) listener(...words);
  }

  async say(words) {
    await this.ready;
    this.socket.send(JSON.stringify(words));
  }

  // All that rests on what Perspective does not promise: the bundle of its notebook's widget, of which this is the
  // notebook; and that `update` draws a grid whose rows are others. The browser's test guards it.
  async show(name, config) {
    if (this.name) {
      this.name = name;
      return this.viewer.restore({table: name, title: name, ...config});
    }
    this.state = {binding_mode: "server", table_name: name, plugin: "Datagrid", theme: theme(), title: name, settings: false, ...config};
    const model = {
      get: key => this.state[key],
      set: (key, value) => { this.state[key] = value; },
      save_changes: () => {},
      on: (event, listener) => (this.listeners[event] ??= new Set()).add(listener),
      off: (event, listener) => this.listeners[event]?.delete(listener),
      send: (message, _, buffers) => {
        this.client = message.client_id;
        if (message.type === "binary_msg") this.socket.send(buffers[0]);
      },
    };
    await perspective.render({model, el: this.element});
    this.name = name;
    this.viewer = this.element.querySelector("perspective-viewer");
    return this.viewer;
  }

  async redraw() {
    const plugin = await this.viewer.getPlugin();
    await plugin.update(await this.viewer.getView());
  }

  async renew(config) {  // with other columns
    await this.viewer.restore({split_by: []});
    await this.viewer.restore(config);
  }
}

// ---------------------------------------------------------------- where we are

const sections = ["views", "cube", "program", "progress", "problems", "memory"];
let here = "", state = null, before = null;

function go() {
  trouble(null);
  const [name, ...rest] = decodeURIComponent(location.hash.slice(1)).split("/");
  const wanted = sections.includes(name) ? name : "views", detail = rest.join("/");
  for (const section of sections) $(section).classList.toggle("here", section === wanted);
  for (const link of document.querySelectorAll("nav a")) link.classList.toggle("here", link.hash === `#${wanted}`);
  here = wanted;
  if (!state) return;
  if (wanted === "views") openView(detail || $("view").value || state.views[0]);
  if (wanted === "cube") openCube(detail ? JSON.parse(detail) : null);
  if (wanted === "program") openProgram();
}

function address(text) {
  history.replaceState(null, "", `#${text}`);
}

// ---------------------------------------------------------------- views

let views = null;

async function openView(name) {
  if (!name || views?.wanted === name) return;
  views ??= new Grid("page/views", $("view-grid"), words => {
    trouble(words.error ? words : null);
    if (words.table) views.show(words.table, words.config).then(() => { views.shown = views.wanted; });
  });
  views.wanted = name;
  $("view").value = name;
  address(`views/${encodeURIComponent(name)}`);
  await views.say({open: name});
}

$("view").onchange = () => openView($("view").value);

// ---------------------------------------------------------------- cubes

let cube = null, selection = null, config = null, dimensions = [];

function openCube(wanted) {
  cube ??= new Grid("page/cubes", $("cube-grid"), heard);
  if (!wanted && selection) return address(`cube/${encodeURIComponent(JSON.stringify(selection))}`);
  const name = wanted?.cube ?? state.cubes[0] ?? state.views[0];
  if (name) act({open: {cube: name, ...wanted}});
}

// One thing after the other: what is clicked is done to what the grid shows by then.
let turn = Promise.resolve(), replied = () => {};

function act(words) {
  turn = turn.then(async () => {
    const reply = new Promise(done => { replied = done; });
    await cube.say(words);
    await answered(await reply);
  }).catch(problem => trouble({error: String(problem)}));
}

function restore(changes) {
  turn = turn.then(() => cube.viewer.restore(changes)).catch(problem => trouble({error: String(problem)}));
}

function redraw() {
  turn = turn.then(async () => {
    if (!cube.name) return;
    const columns = cube.columns;
    await cube.redraw();
    if (cube.columns !== columns) await cube.renew(config);
  }).catch(problem => trouble({error: String(problem)}));
}

function heard(words) {
  if (words.told) tellSelection(words.told);
  else replied(words);
}

async function answered(words) {
  if (words.error) return trouble(words);
  trouble(null);
  ({config, dimensions} = words);
  $("cube-name").value = words.table;
  $("pin").checked = words.pinned !== null;
  cube.pinned = words.pinned;
  await cube.show(words.table, config);
  if (words.redraw) await cube.redraw();
}

function tellSelection(told) {
  if (told.error) return trouble(told);
  trouble(null);
  selection = JSON.parse(told.selection);
  $("explain").textContent = told.explain;
  $("candidates").replaceChildren(...told.candidates.map(each => make("li", each.trim())));
  $("sql").textContent = told.sql;
  $("shown-at").textContent = told.at;
  cube.at = told.at;
  cube.columns = told.columns.join("\n");
  config = told.config;
  if (here === "cube") address(`cube/${encodeURIComponent(JSON.stringify(selection))}`);
  drawDimensions();
  drawFilters();
}

function drawDimensions() {
  const pivots = new Set(config.split_by), rows = new Set(config.group_by);
  $("dimensions").replaceChildren(...dimensions.map(({name, levels}) => {
    const box = make("span", "", "dimension"), depth = levels.filter(each => rows.has(each) || pivots.has(each)).length;
    const isPivot = depth > 0 && pivots.has(levels[0]);
    box.dataset.name = name;
    box.append(make("button", "−", "up", () => act({roll_up: name})));
    box.append(make("span", `${name}${levels.length > 1 || levels[0] !== name ? ":" : ""} `));
    if (levels.length > 1 || levels[0] !== name)
      for (const [place, level] of levels.entries()) box.append(make("span", level, place < depth ? "level shown" : "level"));
    else box.firstChild.nextSibling.className = depth ? "shown" : "level";
    box.append(make("button", "+", "down", () => act({drill_down: name})));
    box.append(make("button", isPivot ? "to rows" : "to columns", "pivot", () => turnOver(name, isPivot)));
    box.querySelector(".up").disabled = depth === 0;
    box.querySelector(".down").disabled = depth === levels.length;
    return box;
  }));
  offer($("filter-level"), dimensions.flatMap(each => each.levels), $("filter-level").value);
  offer($("filter-operator"), ["==", ">=", "<=", "LIKE"], $("filter-operator").value);
}

function turnOver(name, isPivot) {
  const pivoted = dimensions.filter(each => config.split_by.includes(each.levels[0])).map(each => each.name);
  act({pivot: isPivot ? pivoted.filter(each => each !== name) : [...pivoted, name]});
}

function drawFilters() {
  $("filters").replaceChildren(...config.filter.map((each, place) => {
    const box = make("span", `${each[0]} ${each[1]} ${[].concat(each[2]).join(", ")} `, "filter");
    box.append(make("button", "×", "", () => restore({filter: config.filter.filter((_, at) => at !== place)})));
    return box;
  }));
}

$("filter-form").onsubmit = event => {
  event.preventDefault();
  restore({filter: [...config.filter, [$("filter-level").value, $("filter-operator").value, $("filter-value").value]]});
  $("filter-value").value = "";
};
$("cube-name").onchange = () => { selection = null; openCube({cube: $("cube-name").value}); };
$("pin").onchange = () => act({pin: $("pin").checked});

// A click on a row offers what is below it: the next level of the last dimension that it is a member of.
$("cube-grid").addEventListener("perspective-click", event => {
  const path = (event.detail.config?.filter ?? []).filter(each => each[1] === "==" && config.group_by.includes(each[0]));
  const last = path.length && dimensions.find(each => each.levels.includes(path[path.length - 1][0]));
  const member = last && last.levels.map(level => path.find(each => each[0] === level)?.[2]).filter(each => each !== undefined);
  $("below").hidden = !last || member.length === last.levels.length;
  if ($("below").hidden) return;
  $("below").textContent = `Below ${member.join(" › ")}`;
  $("below").onclick = () => { $("below").hidden = true; act({drill_down: last.name, member}); };
});

// ---------------------------------------------------------------- the program

async function openProgram() {
  if ($("drawing").firstChild) return;
  const answer = await fetch(new URL("page/program.svg", root)), text = await answer.text();
  if (!answer.ok) return trouble({error: "The program is shown to who may read all views."});
  const drawing = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  $("drawing").replaceChildren(document.importNode(drawing, true));
  for (const node of $("drawing").querySelectorAll(".map")) {
    node.onclick = () => showMap(node.dataset.name);
    node.onkeydown = event => { if (event.key === "Enter") showMap(node.dataset.name); };
  }
  shadeMaps();
}

function shadeMaps() {
  const amount = $("shade").value;
  for (const each of state.maps ?? []) {
    const node = $("drawing").querySelector(`.map[data-name="${CSS.escape(each.name)}"]`);
    if (!node) continue;
    node.setAttribute("class", `node map heat-${each.heat[amount]}`);
    const told = node.querySelector(".numbers");
    if (told) told.textContent = amount === "bytes" ? `${kilobytes(each.bytes)} kB` : `${counted.format(each.entries)} ${each.entries === 1 ? "entry" : "entries"}`;
  }
}

const kilobytes = bytes => counted.format(Math.round((bytes ?? 0) / 1024));

async function showMap(name) {
  const map = await (await fetch(new URL(`page/maps/${encodeURIComponent(name)}`, root))).json();
  const numbers = state.maps.find(each => each.name === name);
  $("map").replaceChildren(make("h2", map.name), make("p", map.columns.join(", ")));
  if (numbers) $("map").append(make("p", `${counted.format(numbers.entries)} entries, ${kilobytes(numbers.bytes)} kB`));
  if (map.views.length) $("map").append(make("p", `Shown by ${map.views.join(", ")}`));
  if (map.sql) $("map").append(make("pre", map.sql));
  for (const each of map.statements) {
    $("map").append(make("h3", `${each.on} – ${each.cost}`), make("pre", each.text));
    if (each.reads.length) $("map").append(make("p", `reads ${each.reads.join("; ")}`));
  }
}

$("shade").onchange = shadeMaps;

// ---------------------------------------------------------------- numbers

function take(told) {
  before = state;
  state = {...told, heard: performance.now()};
  $("kind").textContent = told.kind;
  $("at").textContent = told.at;
  if (before?.numbers?.events !== undefined && told.numbers?.events !== undefined) {
    const seconds = (state.heard - before.heard) / 1000;
    $("rate").textContent = `${counted.format(Math.round((told.numbers.events - before.numbers.events) / seconds))} events/s`;
  }
  const moved = before?.at === told.at ? before.moved : state.heard;
  state.moved = moved;
  $("link").textContent = `moved ${Math.round((state.heard - moved) / 1000)} s ago`;
  offer($("view"), told.views, views?.wanted);
  offer($("cube-name"), [...told.cubes, ...told.views.filter(each => !told.cubes.includes(each))], selection?.cube);
  const problems = (told.errors?.count ?? 0) + (told.quarantine?.count ?? 0);
  $("problem-count").textContent = problems ? counted.format(problems) : "";
  if (!before) return go();
  if (here === "progress" && told.numbers) {
    $("numbers").replaceChildren(table(["", ""], Object.entries(told.numbers)));
    $("epochs").replaceChildren(table(told.epochs.columns, told.epochs.rows));
  }
  if (here === "problems" && told.errors)
    for (const name of ["quarantine", "errors"]) $(name).replaceChildren(table(told[name].columns, told[name].rows));
  if (here === "program") shadeMaps();
  if (here === "memory" && told.maps) {
    const rows = told.maps.map(each => [each.name, each.keys.join(", "), each.entries, each.bytes]);
    $("maps").replaceChildren(table(["map", "keys", "entries", "bytes"], rows.sort((a, b) => b[3] - a[3])));
  }
  if (here === "cube" && cube?.pinned === null && cube.at !== told.at && !document.hidden) redraw();
}

function listen() {
  const address = new URL("page/state", root);
  address.protocol = address.protocol.replace("http", "ws");
  const socket = new WebSocket(address);
  socket.onmessage = event => take(JSON.parse(event.data));
  socket.onclose = async () => {
    $("link").textContent = "the server is not there; trying again …";
    const answer = await fetch(new URL("v1/views", root)).catch(() => null);
    if (answer?.status !== 401) return setTimeout(listen, 2000);
    $("link").textContent = "who are you?";
    $("login").hidden = false;
  };
}

$("login").onsubmit = async event => {
  event.preventDefault();
  const body = JSON.stringify({token: $("token").value}), headers = {"Content-Type": "application/json"};
  const answer = await fetch(new URL("v1/login", root), {method: "POST", headers, body});
  $("token").value = "";
  if (!answer.ok) return trouble({error: "This token is not known here."});
  trouble(null);
  $("login").hidden = true;
  listen();
};

window.onhashchange = go;
listen();
