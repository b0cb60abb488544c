// The dashboard: what is asked how often, and who shows what comes.

import { Unreachable, paths } from "./api.js";
import { QueryUsageView } from "./query_usage.js";
import { DecisionsView } from "./decisions.js";
import { byId, say, set } from "./dom.js";
import { Events } from "./events.js";
import { Feed, Line } from "./feed.js";
import { span } from "./format.js";
import { LogView } from "./log.js";
import { MachineView } from "./machine.js";
import { MapView, legend } from "./map.js";
import { MembersView } from "./members.js";
import { LIVE, Model } from "./model.js";
import { PlaceView } from "./place.js";
import { PlanView } from "./plan.js";
import { ProgressView } from "./progress.js";
import { QueriesView } from "./queries.js";
import { QueryView } from "./query.js";
import { RunView } from "./run.js";
import { SampleView } from "./sample.js";
import { Series } from "./series.js";
import { StreamsView } from "./streams.js";
import { WhyView } from "./why.js";

const MOST_WATCHED = 20;
const model = new Model();

new MapView(model, byId("map"), byId("map-note"));
legend(byId("map-legend"));
new PlaceView(model, byId("place"), byId("place-title"));
new QueriesView(model, byId("queries"), byId("queries-note"));
new QueryView(model, byId("query-facts"), byId("query-title"), byId("query-note"), byId("query-details"));
new ProgressView(model, byId("query-progress"));
new RunView(model, byId("query-charts"));
new MachineView(model, byId("machine"), byId("machine-title"));
new SampleView(model, byId("sample"));
new PlanView(model, byId("plan"), byId("part"));
new QueryUsageView(model, byId("query-usage"));
new WhyView(model, byId("why"));
new DecisionsView(model, byId("why"));
new MembersView(model, byId("members"), byId("members-note"));
new StreamsView(model, byId("streams"), byId("streams-note"));
const log = new LogView(byId("log"), byId("log-note"));

/** Asked about the chosen query: again and again while it lives, and once more when it is over. */
function ofChosen(everyMs, topic, path, got) {
  let final = "";
  const key = () => `${model.query} ${model.chosen?.state}`;
  return new Feed(
    everyMs,
    () => (!model.query || final === key() ? null : path(model.query)),
    (value) => {
      final = model.chosen && !LIVE.has(model.chosen.state) ? key() : "";
      model.refusals.delete(topic);
      got(model.query, value);
    },
    (error) => {
      if (error instanceof Unreachable) return;
      model.refusals.set(topic, error.hint ? `${error.message}; ${error.hint}` : error.message);
      model.changed("refused");
    },
  );
}

const explanation = ofChosen(2000, "plan", paths.explanation, (id, value) => model.setExplanation(id, value));
const queryUsage = ofChosen(3000, "queryUsage", (id) => paths.queryUsage(id, model.queryUsages.get(id)?.known ?? -1), (id, value) => {
  const series = model.queryUsages.get(id) ?? new Series();
  model.queryUsages.delete(id);
  model.queryUsages.set(id, series);
  for (const oldest of [...model.queryUsages.keys()].slice(0, -MOST_WATCHED)) model.queryUsages.delete(oldest);
  series.add(value);
  model.changed("queryUsages");
});
const info = ofChosen(3000, "info", paths.query, (id, value) => {
  model.infos.clear();
  model.infos.set(id, value);
  model.changed("infos");
});

/** One live query after another, for what they have on the map. */
let turn = "";
function nextOther() {
  const others = model.queries.filter((query) => query.state === "running" && query.id !== model.query).map((query) => query.id);
  turn = others[(others.indexOf(turn) + 1) % others.length] ?? "";
  return turn ? paths.explanation(turn) : null;
}

const members = new Feed(2000, paths.members, (value) => {
  members.everyMs = Math.max(2000, 4 * value.length);
  model.setMembers(value);
});
const line = new Line(
  [
    new Feed(5000, paths.status, (value) => model.setStatus(value)),
    new Feed(6000, () => paths.usage(model.usage.at(-1)?.at_ms ?? 0), (value) => model.addUsage(value)),
    members,
    new Feed(3000, paths.queries, (value) => model.setQueries(value)),
    new Feed(4000, paths.streams, (value) => model.setStreams(value)),
    explanation,
    queryUsage,
    info,
    new Feed(2500, nextOther, (value) => model.setExplanation(value.query, value)),
  ],
  showLine,
);
const events = new Events((entry) => log.add(entry), (reason) => log.broken(reason));

function showLine(state, reason) {
  const words = { connecting: "Connecting", live: "Live", paused: "Paused while the page is hidden", lost: `No answer: ${reason}; trying again` };
  say(byId("connection"), words[state]);
  set(document.body, { "data-line": state });
}

/** Show the age of the data if it exceeds the pause between two requests. */
function showAge() {
  const ageMs = Date.now() - line.heardMs;
  say(byId("age"), line.heardMs && ageMs > 6000 ? `as of ${span(ageMs)} ago` : "");
}

model.on(["status"], () => {
  const { name, cluster, version, engine, members: there } = model.status;
  say(byId("node-name"), name);
  say(byId("node-facts"), `cluster ${cluster}, ${there} there, engine ${engine}, version ${version}`);
  document.title = `${name} · sbon`;
});
model.on(["node"], () => {
  const member = model.member(model.node);
  if (member) say(byId("spoken"), `${member.name}, ${member.state}`);
});
model.on(["chosen"], () => {
  for (const feed of [explanation, queryUsage, info]) feed.start();
  const address = model.query ? `#query=${encodeURIComponent(model.query)}` : "#";
  if (location.hash !== address) history.replaceState(null, "", address);
});

/** `#query=ID` chooses a query: such an address may be kept and passed on. */
function follow() {
  const named = new URLSearchParams(location.hash.slice(1)).get("query");
  if (named) model.chooseQuery(named);
}

window.addEventListener("hashchange", follow);
follow();
setInterval(showAge, 1000);
line.look();
events.start();
