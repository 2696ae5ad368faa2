// Makes a page of the console live: listens to events, swaps what changed, asks in place, and knows keys.
// Every page works without it.

const $ = (selector, root = document) => root.querySelector(selector);
const REST = 1000; // ms between two looks at least
const SLOW = 5000; // ms after which a page is looked at again without an event

const ZONE = "shadowrelay-zone";

let paused = false;
let wanted = false;
let looking = false;
let looked = Date.now();
let events = null;

const idle = () => paused || document.hidden || !$("[data-live]");

function say(text, kind = "") {
  const live = $("#live");
  if (live && live.textContent !== text) live.textContent = text;
  if (live) live.dataset.kind = kind;
}

// Times are in the zone of who reads, or in UTC: a cookie tells which. Returns whether that is new.
function keepZone(utc = localStorage.getItem("utc") === "yes") {
  const zone = utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const said = document.cookie.split("; ").find((one) => one.startsWith(`${ZONE}=`))?.slice(ZONE.length + 1) ?? "UTC";
  document.cookie = `${ZONE}=${zone}; path=/; max-age=31536000; samesite=strict`;
  return said !== zone;
}

async function page(url, options = {}) {
  const headers = { ...options.headers, "x-fragments": "1" };
  const answer = await fetch(url, { ...options, headers, credentials: "same-origin" });
  const found = new DOMParser().parseFromString(await answer.text(), "text/html");
  return { answer, found };
}

// Focus, choices, open details and scroll stay as they were. What somebody reads from is left alone.
function swap(before, after) {
  const chosen = document.getSelection();
  if (chosen && !chosen.isCollapsed && before.contains(chosen.anchorNode)) return;
  const plain = (node) => node.innerHTML.replace(/\s+/g, " ");
  if (plain(before) === plain(after) && before.className === after.className) return;
  const focus = before.contains(document.activeElement) ? document.activeElement : null;
  const at = focus && (focus.id ? `#${CSS.escape(focus.id)}` : focus.href ? `a[href="${CSS.escape(focus.getAttribute("href"))}"]` : "");
  for (const one of before.querySelectorAll("details[id][open]")) $(`#${CSS.escape(one.id)}`, after)?.setAttribute("open", "");
  for (const one of before.querySelectorAll("input[id]:checked")) {
    const same = $(`#${CSS.escape(one.id)}`, after);
    if (same) same.checked = true;
  }
  const scrolled = [...before.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  before.className = after.className;
  before.replaceChildren(...after.childNodes);
  before.querySelectorAll(".wide").forEach((one, number) => (one.scrollLeft = scrolled[number] ?? 0));
  if (at) $(at, before)?.focus({ preventScroll: true });
}

async function look() {
  if (looking || idle()) return;
  looking = true;
  wanted = false;
  try {
    const { answer, found } = await page(location.href);
    if (answer.status === 401) return location.reload();
    if (!idle() && answer.ok) {
      for (const one of document.querySelectorAll("[data-live]")) {
        const after = found.getElementById(one.id);
        if (after) swap(one, after);
      }
      say("Live", "on");
    }
  } catch {
    say("This node does not answer", "off");
  } finally {
    looking = false;
    looked = Date.now();
  }
}

setInterval(() => {
  const since = Date.now() - looked;
  if ((wanted && since >= REST) || since >= SLOW) look();
}, 250);

function listen() {
  if (events || idle()) return;
  events = new EventSource("/api/v1/events");
  const came = () => (wanted = true);
  events.onmessage = came;
  events.addEventListener("tracking", came);
  events.onerror = () => {
    if (events && events.readyState === EventSource.CLOSED) rest();
  };
}

function rest() {
  events?.close();
  events = null;
}

function awake() {
  if (idle()) {
    rest();
    if (paused) say("Paused", "off");
  } else {
    listen();
    look();
  }
}
document.addEventListener("visibilitychange", awake);
addEventListener("pagehide", rest);
addEventListener("pageshow", () => idle() || listen());

// A form that asks first shows its question in place. What is refused says why there.
function placeFor(form) {
  // A field named "id" hides the property of its form.
  const named = document.getElementById((form.getAttribute("id") ?? "").replace(/(-verbs)?$/, "-acts"));
  if (named) return named;
  const made = document.createElement("div");
  form.after(made);
  return made;
}

async function ask(form, submitter) {
  const data = new FormData(form, submitter);
  const post = form.getAttribute("method") === "post";
  const place = form.closest("#act")?.parentElement ?? placeFor(form);
  const url = new URL(form.getAttribute("action"), location.href);
  if (!post) url.search = new URLSearchParams(data);
  submitter?.setAttribute("aria-busy", "true");
  try {
    const { answer, found } = await page(url, post ? { method: "POST", body: new URLSearchParams(data) } : {});
    if (answer.redirected && answer.ok && post) return location.assign(answer.url);
    const part = found.getElementById("act") ?? found.getElementById("error");
    if (!part) throw new Error("no answer");
    place.replaceChildren(part);
    (part.querySelector("[autofocus], [aria-invalid]") ?? part.querySelector("input:not([type=hidden]), button") ?? part).focus();
  } catch {
    const why = document.createElement("p");
    why.className = "why";
    why.role = "alert";
    why.textContent = "This node does not answer: nothing was changed by this page.";
    place.append(why);
  } finally {
    submitter?.removeAttribute("aria-busy");
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("[data-inline]")) return;
  event.preventDefault();
  ask(form, event.submitter);
});

document.addEventListener("click", (event) => {
  const cancel = event.target.closest?.("#act [data-cancel]");
  if (!cancel) return;
  const place = cancel.closest("#act").parentElement;
  if (!place.id.endsWith("-acts")) return;
  event.preventDefault();
  place.replaceChildren();
  $(`#${place.id.replace("-acts", "-verbs")} button`)?.focus();
});

// What is typed is looked for, from three letters on. A later question ends the one before.
const REST_TYPING = 250; // ms
let typed = 0;
let finding = null;

async function find(field) {
  const text = field.value.trim();
  finding?.abort();
  finding = new AbortController();
  const url = new URL(field.form.action);
  url.searchParams.set(field.name, text);
  try {
    const { answer, found } = await page(url, { signal: finding.signal });
    if (!answer.ok || field.value.trim() !== text) return;
    const here = new URL(location.href).searchParams.has("q");
    history[here ? "replaceState" : "pushState"](null, "", url);
    place = location.pathname + location.search;
    document.title = found.title || document.title;
    $("#main").replaceChildren(...found.body.childNodes);
    for (const one of document.querySelectorAll("nav [aria-current]")) one.removeAttribute("aria-current");
    looked = Date.now();
    listen();
  } catch (error) {
    if (error.name !== "AbortError") say("This node does not answer", "off");
  }
}

$("#find")?.addEventListener("input", (event) => {
  clearTimeout(typed);
  finding?.abort();
  if (event.target.value.trim().length >= 3) typed = setTimeout(find, REST_TYPING, event.target);
});
let place = location.pathname + location.search;
addEventListener("popstate", () => {
  if (location.pathname + location.search !== place) location.reload();
});

document.addEventListener("change", (event) => {
  const name = event.target.dataset?.all;
  if (name) for (const one of event.target.form.querySelectorAll(`input[name="${name}"]`)) one.checked = event.target.checked;
});

let going = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (event.key === "Escape" && typing) return event.target.blur();
  if (typing || $("dialog[open]")) return;
  const goes = Date.now() - going < 1500 && document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
  going = event.key === "g" ? Date.now() : 0;
  if (goes) goes.click();
  else if (event.key === "/") {
    event.preventDefault();
    $("#find")?.focus();
    $("#find")?.select();
  } else if (event.key === "?") $("#keys")?.showModal();
  else if (event.key === "u") {
    localStorage.setItem("utc", localStorage.getItem("utc") === "yes" ? "no" : "yes");
    if (keepZone()) look();
  } else if (event.key === "p") {
    paused = !paused;
    awake();
  }
});

document.documentElement.classList.add("scripted");
if (!idle()) say("Live", "on");
listen();
if (keepZone()) look();
