"use strict";
// Shows and hides what the page holds; every number was computed before it was written.
(() => {
  const all = (where, what) => [...where.querySelectorAll(what)];
  const byId = (id) => document.getElementById(id);

  function diagram(root) {
    const view = root.querySelector(".view");
    const panel = root.querySelector(".panel");
    const states = all(root, ".state");
    const key = (names) => JSON.stringify([...names].sort());
    const closed = new Map(states.map((s) => [key(JSON.parse(s.dataset.closed)), s]));
    const stops = (state) => all(state, "a.box, [data-open], [data-close]");
    const svgOf = (state) => state.querySelector("svg");
    const shown = () => states.find((state) => !state.hidden);
    let zoom = 0; // 0 is the size that the page was written with
    const READABLE = 0.75; // no letters below 8 pixels

    for (const state of states) {
      for (const [name, says] of [["open", "Open"], ["close", "Close"]]) {
        for (const mark of all(state, `[data-${name}]`)) {
          mark.setAttribute("role", "button");
          mark.setAttribute("aria-label", `${says} ${mark.dataset[name]}`);
          mark.setAttribute("aria-expanded", String(name === "close"));
        }
      }
      stops(state).forEach((stop, i) => stop.setAttribute("tabindex", i ? "-1" : "0"));
    }

    function size(state) {
      const svg = svgOf(state);
      const natural = svg.viewBox.baseVal.width;
      svg.style.width = zoom ? `${natural * zoom}px` : "";
      svg.style.maxWidth = svg.style.minWidth = zoom ? "none" : "";
    }

    function magnify(times, x = view.clientWidth / 2, y = view.clientHeight / 2) {
      const svg = svgOf(shown());
      const before = svg.getBoundingClientRect().width;
      const natural = svg.viewBox.baseVal.width;
      zoom = Math.min(4, Math.max(0.1, (before / natural) * times));
      size(shown());
      const grown = svg.getBoundingClientRect().width / before;
      view.scrollLeft = (view.scrollLeft + x) * grown - x;
      view.scrollTop = (view.scrollTop + y) * grown - y;
    }

    function fit() {
      const { width, height } = svgOf(shown()).viewBox.baseVal;
      zoom = Math.min(1.2, view.clientWidth / width, (0.75 * window.innerHeight) / height);
      size(shown());
    }

    function show(state) {
      if (!state || state === shown()) return;
      shown().hidden = true;
      state.hidden = false;
      size(state);
    }

    // A group opens with those around it; where not every way to do so was drawn, others close.
    function toggle(name, open) {
      const now = JSON.parse(shown().dataset.closed);
      const next = open ? now.filter((n) => n !== name) : [...now, name];
      let state = closed.get(key(next));
      if (!state) {
        const shut = (s) => JSON.parse(s.dataset.closed);
        const differ = (a, b) => a.filter((n) => !b.includes(n)).length;
        const cost = (s) =>
          open ? -shut(s).length : differ(shut(s), next) + differ(next, shut(s));
        const fits = states.filter((s) => shut(s).includes(name) !== open);
        state = fits.sort((a, b) => cost(a) - cost(b))[0];
      }
      show(state);
      const other = open ? "close" : "open";
      const mark = all(shown(), `[data-${other}]`).find((m) => m.dataset[other] === name);
      if (mark) focusOn(mark);
    }

    function focusOn(stop) {
      stops(shown()).forEach((each) => each.setAttribute("tabindex", each === stop ? "0" : "-1"));
      stop.focus({ preventScroll: true });
      const seen = stop.dataset.close ? stop.querySelector("text") : stop; // frames are wide
      seen.scrollIntoView({ block: "nearest", inline: "nearest" });
    }

    function detail(id) {
      const card = byId(id);
      if (!card) return;
      const copy = card.cloneNode(true);
      copy.removeAttribute("id");
      panel.replaceChildren(copy);
      panel.scrollTop = 0;
      for (const state of states) {
        for (const box of all(state, "a.box")) {
          box.classList.toggle("chosen", box.getAttribute("href") === `#${id}`);
        }
      }
    }

    function go(stop, to) {
      const middle = (mark) => {
        const box = mark.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];
      };
      const [x, y] = middle(stop);
      let best = null;
      let least = Infinity;
      for (const other of stops(shown())) {
        if (other === stop) continue;
        const [a, b] = middle(other);
        const [ahead, aside] = {
          ArrowRight: [a - x, b - y],
          ArrowLeft: [x - a, b - y],
          ArrowDown: [b - y, a - x],
          ArrowUp: [y - b, a - x],
        }[to];
        const cost = ahead + 2 * Math.abs(aside);
        if (ahead > 2 && cost < least) [best, least] = [other, cost];
      }
      if (best) focusOn(best);
    }

    function act(stop) {
      if (stop.dataset.open) toggle(stop.dataset.open, true);
      else if (stop.dataset.close) toggle(stop.dataset.close, false);
      else if (byId(stop.getAttribute("href").slice(1))?.classList.contains("card"))
        detail(stop.getAttribute("href").slice(1));
      else return false;
      return true;
    }

    root.querySelector(".tools").addEventListener("click", (event) => {
      const what = event.target.dataset.do;
      if (what === "in") magnify(1.25);
      if (what === "out") magnify(0.8);
      if (what === "fit") fit();
      if (what === "open") show(states[0]);
      if (what === "close") show(states[states.length - 1]);
    });
    let moved = false;
    view.addEventListener("click", (event) => {
      const stop = event.target.closest("a.box, [data-open], text")?.closest(
        "a.box, [data-open], [data-close]");
      if (moved) event.preventDefault();
      else if (stop && act(stop)) event.preventDefault();
    });
    panel.addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (!link) return;
      event.preventDefault();
      detail(link.getAttribute("href").slice(1));
    });
    view.addEventListener("keydown", (event) => {
      const stop = event.target.closest("a.box, [data-open], [data-close]");
      if (event.key === "+" || event.key === "=") magnify(1.25);
      else if (event.key === "-") magnify(0.8);
      else if (event.key === "0") fit();
      else if (stop && event.key.startsWith("Arrow")) go(stop, event.key);
      else if (!(stop && (event.key === "Enter" || event.key === " ") && act(stop))) return;
      event.preventDefault();
    });
    const room = view.clientWidth / svgOf(shown()).viewBox.baseVal.width;
    if (room < 1) {
      // all of it where that can be read; on a narrow page a part, from which one moves on
      fit();
      if (zoom < READABLE) {
        zoom = READABLE;
        size(shown());
      }
    }
    view.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = view.getBoundingClientRect();
      magnify(Math.exp(-event.deltaY / 200), event.clientX - box.x, event.clientY - box.y);
    }, { passive: false });

    const fingers = new Map();
    let apart = 0;
    const distance = () => {
      const [a, b] = [...fingers.values()];
      return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    };
    view.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event);
      moved = false;
      if (fingers.size === 2) apart = distance();
    });
    view.addEventListener("pointermove", (event) => {
      const last = fingers.get(event.pointerId);
      if (!last) return;
      fingers.set(event.pointerId, event);
      if (fingers.size === 2) {
        const now = distance();
        const [a, b] = [...fingers.values()];
        const box = view.getBoundingClientRect();
        magnify(now / apart, (a.clientX + b.clientX) / 2 - box.x, (a.clientY + b.clientY) / 2 - box.y);
        apart = now;
      } else if (event.pointerType === "mouse") {
        const [x, y] = [event.clientX - last.clientX, event.clientY - last.clientY];
        if (Math.abs(x) + Math.abs(y) > 0) moved = moved || Math.hypot(x, y) > 2;
        if (moved) view.classList.add("moving");
        view.scrollLeft -= x;
        view.scrollTop -= y;
      }
    });
    const release = (event) => {
      fingers.delete(event.pointerId);
      view.classList.remove("moving");
    };
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
      view.addEventListener(name, release);
    }
    view.addEventListener("dragstart", (event) => event.preventDefault());
  }

  function whatIf(grid) {
    const [what, noise, delta] = ["wi-what", "wi-noise", "wi-delta"].map(byId);
    function update() {
      const [i, j, k] = [what.selectedIndex, Number(noise.value), Number(delta.value)];
      byId("wi-answer").textContent = `ε ≤ ${grid.epsilons[i][j][k]}`;
      byId("wi-noise-says").textContent = grid.factors[j];
      byId("wi-delta-says").textContent = grid.deltas[k];
      noise.setAttribute("aria-valuetext", grid.factors[j]);
      delta.setAttribute("aria-valuetext", grid.deltas[k]);
      byId("wi-bar").setAttribute("width", grid.ratios[i][j][k]);
    }
    for (const each of [what, noise, delta]) each.addEventListener("input", update);
    update();
  }

  function save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(
      new Blob([byId("certificate").textContent], { type: "application/json" }));
    link.download = "certificate.json";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // The fold of all nodes opens where a link leads into it; all open to be printed.
  function folds() {
    const reveal = () => {
      const target = location.hash.length > 1 && byId(decodeURIComponent(location.hash.slice(1)));
      const fold = target && target.closest("#nodes")?.querySelector("details");
      if (fold) fold.open = true;
    };
    window.addEventListener("hashchange", reveal);
    reveal();
    let opened = [];
    window.addEventListener("beforeprint", () => {
      opened = all(document, "details:not(.raw):not([open])");
      for (const each of opened) each.open = true;
    });
    window.addEventListener("afterprint", () => {
      for (const each of opened) each.open = false;
    });
  }

  document.documentElement.classList.add("live");
  document.addEventListener("DOMContentLoaded", () => {
    all(document, ".diagram").forEach(diagram);
    const grid = byId("what-if-data");
    if (grid) whatIf(JSON.parse(grid.textContent));
    byId("save").addEventListener("click", save);
    folds();
  });
})();
