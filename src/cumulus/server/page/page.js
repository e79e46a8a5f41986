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

// ---------------------------------------------------------------- connections

const SILENT_MS = 8000, PING_MS = 4000, MOST_PAUSE_MS = 15000, REFUSED_PAUSE_MS = 30000;
const links = new Set();

// A WebSocket that is opened again when it is lost, later each time. One that says nothing is lost, too: a proxy, a
// sleep or a cable may have cut it without a word. Those that only speak when asked are asked: `pings`.
class Link {
  constructor(path, {heard, opened, dropped, pings}) {
    Object.assign(this, {path, heard, opened, dropped, pings, tries: 0, reason: ""});
    links.add(this);
    this.open();
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  open() {
    clearTimeout(this.timer);
    const address = new URL(this.path, root);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = this.socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    this.heardAt = performance.now();
    this.askedAt = null;
    socket.onopen = () => {
      if (socket !== this.socket) return;
      this.opened?.();
      tellLinks();
    };
    socket.onmessage = ({data}) => {
      if (socket !== this.socket) return;
      this.heardAt = performance.now();
      this.askedAt = null;
      this.tries = 0;
      this.reason = "";
      if (data !== '{"pong":true}') this.heard(data);
    };
    socket.onclose = event => { if (socket === this.socket) this.lose(event.code === 1008 ? event.reason : ""); };
  }

  send(data) {
    if (this.isOpen) this.socket.send(data);
  }

  lose(reason = "") {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.reason = reason;
    const pause = reason ? REFUSED_PAUSE_MS : Math.min(500 * 2 ** this.tries++, MOST_PAUSE_MS) * (0.75 + Math.random() / 2);
    this.againAt = performance.now() + pause;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), pause);
    this.dropped?.();
    tellLinks();
    askWho();
  }

  check() {
    const now = performance.now();
    if (!this.socket) return;
    if (this.pings && this.isOpen && this.askedAt === null && now - this.heardAt > PING_MS) {
      this.askedAt = now;
      this.send('{"ping":true}');
    }
    const since = this.pings && this.isOpen ? this.askedAt : this.heardAt;
    if (since !== null && now - since > SILENT_MS) this.lose();
  }

  stop() {
    const socket = this.socket;
    this.socket = null;
    clearTimeout(this.timer);
    socket?.close();
    this.dropped?.();
  }

  again() {
    if (!this.socket) this.open();
  }
}

function tellLinks() {
  const lost = [...links].filter(each => !each.isOpen);
  document.body.classList.toggle("stale", lost.length > 0);
  $("stale").hidden = !lost.length || !$("login").hidden;
  if (!lost.length) return;
  const left = Math.max(0, ...lost.map(each => Math.ceil(((each.againAt ?? 0) - performance.now()) / 1000)));
  const reason = lost.map(each => each.reason).find(each => each);
  $("stale-why").textContent = `What is shown is not followed: ${reason || "the server is not there"}. `
    + (left ? `Trying again in ${left} s …` : "Trying again …");
  $("link").textContent = "not followed";
}

setInterval(() => {
  for (const each of links) each.check();
  tellLinks();
}, 1000);
const hasten = () => { if (!document.hidden && $("login").hidden) for (const each of links) if (!each.reason) each.again(); };
window.addEventListener("online", hasten);
document.addEventListener("visibilitychange", hasten);
$("again").onclick = () => { for (const each of links) each.again(); };

// Who looks at the page: without a token that the server knows nothing is asked for again.
async function askWho() {
  const answer = await fetch(new URL("v1/me", root), {cache: "no-store"}).catch(() => null);
  if (answer?.status === 401) {
    for (const each of links) each.stop();
    $("login").hidden = false;
    $("who").hidden = true;
    $("link").textContent = "who are you?";
    return tellLinks();
  }
  if (!answer?.ok) return;
  const {name} = await answer.json();
  $("who").hidden = name === "everybody";
  $("who-name").textContent = name;
}

$("logout").onclick = async () => {
  for (const each of links) each.stop();
  await fetch(new URL("v1/logout", root), {method: "POST"}).catch(() => null);
  location.reload();  // so that nothing of what was shown stays
};

// A link on which Perspective's messages are bytes and the page's own are texts, and the grid that it feeds. `begin` is
// called when the server knows nothing yet: at first, and when the link was lost.
class Grid {
  constructor(path, element, told, begin, dropped) {
    this.element = element;
    this.listeners = {};
    this.kept = {};
    this.link = new Link(path, {
      pings: true,
      opened: async () => {
        const {socket} = this.link;
        await this.reset();
        if (socket !== this.link.socket) return;  // it was lost meanwhile
        this.isReady = true;
        begin();
      },
      heard: data => {
        if (typeof data === "string") told(JSON.parse(data));
        else this.tell("msg:custom", {type: "binary_msg", client_id: this.client}, [{buffer: data}]);
      },
      dropped: () => { this.isReady = false; dropped?.(); },
    });
    dark.addEventListener("change", () => this.viewer?.restore({theme: theme()}));
  }

  // The server of the grid before is gone: begin with a new one, in a box of its own, that is set as the old one was.
  async reset() {
    const viewer = this.viewer, late = new Promise(done => setTimeout(done, 500));
    this.viewer = this.name = this.client = this.box = null;  // the old one says nothing to the new server
    this.listeners = {};
    const saved = viewer && await Promise.race([viewer.save().catch(() => null), late]);
    if (saved) this.kept = {plugin: saved.plugin, settings: saved.settings};
    this.box = document.createElement("div");
    this.element.replaceChildren(this.box);
  }

  tell(name, ...words) {
    for (const listener of this.listeners[name] ?? []) listener(...words);
  }

  say(words) {
    this.link.send(JSON.stringify(words));
  }

  // All that rests on what Perspective does not promise: the bundle of its notebook's widget, of which this is the
  // notebook; and that `update` draws a grid whose rows are others. The browser's test guards it.
  async show(name, config) {
    if (this.name) {
      this.name = name;
      return this.viewer.restore({table: name, title: name, ...config});
    }
    this.state = {binding_mode: "server", table_name: name, plugin: "Datagrid", theme: theme(), title: name, settings: false, ...config, ...this.kept};
    const {box, listeners} = this;
    const model = {
      get: key => this.state[key],
      set: (key, value) => { this.state[key] = value; },
      save_changes: () => {},
      on: (event, listener) => (listeners[event] ??= new Set()).add(listener),
      off: (event, listener) => listeners[event]?.delete(listener),
      send: (message, _, buffers) => {
        if (box !== this.box) return;
        this.client = message.client_id;
        if (message.type === "binary_msg") this.link.send(buffers[0]);
      },
    };
    await perspective.render({model, el: box});
    if (box !== this.box) return;  // the connection was lost meanwhile
    this.name = name;
    this.viewer = box.querySelector("perspective-viewer");
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

function openView(name) {
  if (!name || views?.wanted === name) return;
  $("view").value = name;
  address(`views/${encodeURIComponent(name)}`);
  if (views) {
    views.wanted = name;
    return views.say({open: name});
  }
  views = new Grid("page/views", $("view-grid"), words => {
    trouble(words.error ? words : null);
    if (words.ended) return views.link.lose();
    if ("empty" in words) return showEmpty(words);
    if (!words.table) return;
    showEmpty(words.rows);
    views.show(words.table, words.config).then(() => { views.shown = views.wanted; });
  }, () => views.say({open: views.wanted}));
  views.wanted = name;
}

// Perspective draws no heads where there are no rows.
function showEmpty({empty, columns}) {
  $("view-empty").hidden = !empty;
  if (empty) $("view-empty").replaceChildren(table(columns, []), make("p", "This view has no rows."));
}

$("view").onchange = () => openView($("view").value);

// ---------------------------------------------------------------- cubes

let cube = null, selection = null, config = null, dimensions = [];

function openCube(wanted) {
  if (!cube) {
    cube = new Grid("page/cubes", $("cube-grid"), heard, beginCube, () => {
      replied({lost: true});
      turn = Promise.resolve();  // what waits for the old server never ends
    });
    cube.first = wanted;
    return;
  }
  if (!cube.isReady && wanted) cube.first = wanted;
  if (!wanted && selection) {
    redraw();  // what was drawn while it could not be seen has no rows
    return address(`cube/${encodeURIComponent(JSON.stringify(selection))}`);
  }
  const name = wanted?.cube ?? state.cubes[0] ?? state.views[0];
  if (name) act({open: {cube: name, ...wanted}});
}

function beginCube() {
  const held = cube.pinned;
  cube.pinned = null;
  openCube(selection ?? cube.first ?? {});
  if (typeof held === "number")
    turn = turn.then(() => trouble({error: `The cube is not held at ${held} any more: the connection was lost.`}));
}

// One thing after the other: what is clicked is done to what the grid shows by then.
let turn = Promise.resolve(), replied = () => {};

function act(words) {
  turn = turn.then(async () => {
    if (!cube.isReady) return;
    const reply = new Promise(done => { replied = done; });
    cube.say(words);
    await answered(await reply);
  }).catch(problem => trouble({error: String(problem)}));
}

function restore(changes) {
  turn = turn.then(() => cube.viewer.restore(changes)).catch(problem => trouble({error: String(problem)}));
}

function redraw() {
  turn = turn.then(async () => {
    if (!cube.name || !cube.isReady) return;
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
  if (words.lost) return;
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
  if ([...links].every(each => each.isOpen)) $("link").textContent = `moved ${Math.round((state.heard - moved) / 1000)} s ago`;
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

const following = new Link("page/state", {heard: data => take(JSON.parse(data))});

$("login").onsubmit = async event => {
  event.preventDefault();
  const body = JSON.stringify({token: $("token").value}), headers = {"Content-Type": "application/json"};
  const answer = await fetch(new URL("v1/login", root), {method: "POST", headers, body}).catch(() => null);
  $("token").value = "";
  if (!answer?.ok) return trouble({error: answer?.status === 401 ? "This token is not known here." : "The server lets nobody in now."});
  trouble(null);
  $("login").hidden = true;
  $("link").textContent = "connecting …";
  for (const each of links) each.again();
  askWho();
};

window.onhashchange = go;
askWho();
