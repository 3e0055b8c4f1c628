// Asks for the page again every two seconds and replaces the sections that changed. The page is whole without it.
"use strict";
(() => {
  const PACE = 2000;
  const SLOWEST = 30000;
  // A connection that is lost, behind a tunnel or while the machine slept, may never end by itself.
  const PATIENCE = 60000;
  let tag = null;
  let failures = 0;
  let since = new Date();

  const by = (id) => document.getElementById(id);

  function say(id, text) {
    // A screen reader reads the text again whenever it is written, so equal text is not.
    const place = by(id);
    if (place.textContent !== text) place.textContent = text;
  }

  function trouble(text) {
    say("trouble", text);
    by("trouble").hidden = text === "";
  }

  function adopt(fresh) {
    document.title = fresh.title;
    say("announcement", fresh.getElementById("announcement").textContent);
    say("foot", fresh.getElementById("foot").textContent);
    trouble(fresh.getElementById("trouble").textContent);
    const focused = document.activeElement ? document.activeElement.id : "";
    const live = by("live");
    const now = fresh.getElementById("live");
    const ids = (parent) => Array.from(parent.children, (child) => child.id).join(" ");
    if (ids(live) !== ids(now)) {
      live.replaceChildren(...now.children);
    } else {
      for (const section of Array.from(now.children)) {
        const shown = by(section.id);
        if (shown.isEqualNode(section)) continue;
        const left = shown.querySelector(".scroll")?.scrollLeft;
        shown.replaceWith(section);
        if (left) section.querySelector(".scroll").scrollLeft = left;
      }
    }
    const again = focused && by(focused);
    if (again && again !== document.activeElement) again.focus({ preventScroll: true });
  }

  async function look() {
    if (!document.hidden) {
      try {
        const headers = tag ? { "If-None-Match": tag } : {};
        const signal = AbortSignal.timeout(PATIENCE);
        const answer = await fetch(location.href.split("#")[0], { headers, cache: "no-store", redirect: "error", signal });
        failures = 0;
        if (answer.status !== 304) {
          const text = await answer.text();
          const fresh = new DOMParser().parseFromString(text, "text/html");
          if (!fresh.getElementById("live")) throw new Error("no page");
          tag = answer.headers.get("ETag");
          adopt(fresh);
        } else {
          trouble(document.body.dataset.lost ? "" : by("trouble").textContent);
        }
        delete document.body.dataset.lost;
        since = new Date();
      } catch {
        failures += 1;
        tag = null;
        document.body.dataset.lost = "yes";
        trouble(`liqodctl web does not answer: this is the state of ${since.toLocaleTimeString()}. Start it again, and open the address that it prints.`);
      }
    }
    setTimeout(look, Math.min(SLOWEST, PACE * 2 ** Math.min(failures, 4)));
  }

  setTimeout(look, PACE);
})();
