// Values and zoom of charts over time, for a page that is whole without them. Point at a chart for
// its values, drag over it to zoom, double-click to see all of it. With the keyboard: arrows, with
// Shift to move what is shown, + and -, Escape.
"use strict";
{
  const DEEPEST = 20; // Coordinates have a tenth of a pixel.
  const shown = new Map(); // What a zoomed chart shows, by its figure: two numbers of its x axis.
  const told = value => String(+value.toPrecision(4));
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const place = value => String(Math.round(value * 10) / 10);
  const element = (name, values) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
    return made;
  };
  const operations = d => (d.match(/[a-zA-Z][^a-zA-Z]*/g) || []).map(part =>
    [part[0], (part.slice(1).match(/-?[\d.]+/g) || []).map(Number)]);

  // Round numbers within a range, with the digits that tell them apart.
  const ticks = (low, high, most) => {
    const power = 10 ** Math.floor(Math.log10((high - low) / most));
    const steps = [1, 2, 5, 10].map(one => one * power);
    const step = steps.find(one => one * most >= (high - low) * 0.999);
    const digits = clamp(-Math.floor(Math.log10(step) + 1e-9), 0, 9);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) {
      found.push([at * step, (at * step).toFixed(digits)]);
    }
    return found;
  };

  // A path as what can be drawn again: its operations, and the points of a series.
  const part = path => {
    const all = operations(path.getAttribute("d"));
    const kind = path.dataset.mark || "series";
    const points = [];
    const lows = [];
    let [x, y] = [0, 0];
    const count = +path.dataset.points || 0;
    for (const [letter, [a, b]] of all) {
      if (letter === "M" || letter === "L") [x, y] = [a, b];
      if (letter === "H") x = a;
      if (letter === "V") y = a;
      if (!"MLV".includes(letter)) continue;
      if (points.length < count) points.push([x, y]); else lows.unshift(y);
    }
    const isArea = count > 0 && all.at(-1)?.[0] === "Z";
    const holds = all.some(([letter]) => letter === "H");
    const isDots = all.some(([letter]) => letter === "h");
    const d = path.getAttribute("d");
    return { path, d, all, kind, points, lows, isArea, holds, isDots, name: path.dataset.series };
  };

  const begin = figure => {
    const svg = figure.querySelector("svg");
    const plane = svg?.querySelector("[data-plane]");
    if (!plane || figure.querySelector(".view")) return;
    const [left, right, top, bottom, x0, x1, y0, y1] = plane.dataset.plane.split(" ").map(Number);
    const parts = [...plane.querySelectorAll("path[data-series],path[data-limits]")].map(part);
    const series = parts.filter(one => one.points.length);
    const unit = figure.querySelector("table th")?.closest("table").caption.textContent;
    const toPx = x => left + (x - x0) * (right - left) / (x1 - x0);
    const ofPx = px => x0 + (px - left) * (x1 - x0) / (right - left);
    const yOf = px => y0 + (bottom - px) * (y1 - y0) / (bottom - top);
    const axes = ["x", "y"].map(name => plane.querySelector(`.ticks-${name}`));
    const wholes = axes.map(axis => axis.innerHTML);
    const clip = element("clipPath", { id: `${figure.id}-clip` });
    clip.append(element("rect",
      { x: left, y: top - 8, width: right - left, height: bottom - top + 9 }));
    const line = element("path",
      { class: "a", stroke: "#5c5c5c", "stroke-dasharray": "2 2", d: "" });
    const chosen = element("rect", {
      class: "span", fill: "#1a1a1a", "fill-opacity": 0.2, y: top, height: bottom - top, width: 0,
    });
    svg.append(clip, chosen, line);
    const view = document.createElement("div");
    view.className = "view";
    view.tabIndex = 0;
    view.setAttribute("role", "group");
    view.setAttribute("aria-label", `${figure.querySelector("h3").textContent}: left and right ` +
      "for values, plus and minus to zoom, Escape for all");
    const tip = document.createElement("p");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    svg.replaceWith(view);
    view.append(svg, tip);
    let cursor = null; // In pixels of the whole drawing.
    let from = null; // Where a drag began.

    const range = () => {
      const [low, high] = shown.get(figure.id) || [x0, x1];
      return [toPx(Math.max(low, x0)), toPx(Math.min(high, x1))];
    };

    // Where the values are that can be seen: what is stacked keeps its axis.
    const heights = ([a, b]) => {
      const seen = series.flatMap(one => one.points.filter(([x], at) =>
        x >= a && x <= b || one.points[at + 1]?.[0] > a && x < a).map(point => point[1]));
      if (!shown.has(figure.id) || series.some(one => one.isArea) || !seen.length) {
        return [top, bottom];
      }
      const [high, low] = [Math.min(...seen), Math.max(...seen)];
      const beside = Math.max((low - high) * 0.06, 1);
      return [Math.max(high - beside, top - 8), Math.min(low + beside, bottom)];
    };

    const draw = () => {
      const [a, b] = range();
      const [c, e] = heights([a, b]);
      const X = x => left + (x - a) * (right - left) / (b - a);
      const Y = y => top + (y - c) * (bottom - top) / (e - c);
      const isWhole = !shown.has(figure.id);
      for (const { path, d, all, kind } of parts) {
        if (isWhole) {
          path.setAttribute("d", d);
          path.removeAttribute("clip-path");
          continue;
        }
        const x = kind === "level" ? at => at : X;
        const y = kind === "level" || kind === "series" ? Y : at => at;
        const wide = kind === "span" ? (right - left) / (b - a) : 1;
        path.setAttribute("d", all.map(([letter, values]) => letter + ({
          M: ([p, q]) => `${place(x(p))} ${place(y(q))}`,
          L: ([p, q]) => `${place(x(p))} ${place(y(q))}`,
          H: ([p]) => place(x(p)),
          V: ([p]) => place(y(p)),
          h: ([p]) => place(p * wide),
        }[letter] || (all => all.join(" ")))(values)).join(""));
        path.setAttribute("clip-path", `url(#${figure.id}-clip)`);
      }
      axes.forEach((axis, at) => { axis.innerHTML = wholes[at]; });
      if (isWhole) return;
      const made = [ticks(ofPx(a), ofPx(b), 6), ticks(yOf(e), yOf(c), 5)];
      axes.forEach((axis, at) => {
        const [mark, text] = [...axis.children].slice(0, 2);
        axis.replaceChildren(...made[at].flatMap(([value, words]) => {
          const [one, label] = [mark.cloneNode(), text.cloneNode()];
          const px = place(at ? Y(bottom - (value - y0) * (bottom - top) / (y1 - y0))
            : X(toPx(value)));
          one.setAttribute("d", at ? `M${left} ${px}H${right}` : `M${px} ${bottom}v5`);
          label.setAttribute(at ? "y" : "x", at ? +px + 4.5 : px);
          label.textContent = words;
          return [one, label];
        }));
      });
    };

    // The value of a series there: a step holds until the next, a dot is only where it is.
    const valueAt = (one, px) => {
      const near = point => Math.abs(point[0] - px);
      let at = one.points.findLastIndex(point => point[0] <= px + 0.05);
      if (at + 1 < one.points.length && !one.holds && !one.isArea
        && (at < 0 || near(one.points[at + 1]) < near(one.points[at]))) at++;
      const [a, b] = range();
      if (at < 0 || one.isDots && near(one.points[at]) > 4 * (b - a) / (right - left)) return null;
      const low = one.isArea ? one.lows[Math.min(at, one.lows.length - 1)] ?? bottom : null;
      const value = yOf(one.points[at][1]) - (low === null ? 0 : yOf(low));
      return `${one.name} ${told(value)}`;
    };

    const say = () => {
      const [a, b] = range();
      const isIn = cursor !== null && cursor >= a - 0.1 && cursor <= b + 0.1;
      const X = left + (cursor - a) * (right - left) / (b - a);
      line.setAttribute("d", isIn ? `M${place(X)} ${top}V${bottom}` : "");
      const zoomed = shown.has(figure.id)
        ? `${told(ofPx(a))} to ${told(ofPx(b))} of ${told(x0)} to ${told(x1)}; Escape shows all`
        : "";
      if (!isIn) { tip.textContent = zoomed; return; }
      const values = series.map(one => valueAt(one, cursor)).filter(value => value !== null);
      const spans = parts.filter(one => one.kind === "span" && one.all.some(([letter, [x]], at) =>
        letter === "M" && cursor >= x && cursor <= x + one.all[at + 1][1][0]));
      tip.textContent = `at ${told(ofPx(cursor))}: ${values.join(", ")}` +
        spans.map(one => `; ${one.name}`).join("");
      tip.title = unit || "";
    };

    const zoom = (low, high) => {
      const least = (x1 - x0) / DEEPEST;
      const length = clamp(high - low, least, x1 - x0);
      const start = clamp((low + high - length) / 2, x0, x1 - length);
      if (length >= (x1 - x0) * 0.999) shown.delete(figure.id);
      else shown.set(figure.id, [start, start + length]);
      draw();
      say();
    };

    const pointed = event => {
      const box = svg.getBoundingClientRect();
      const px = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const [a, b] = range();
      return clamp(a + (px - left) * (b - a) / (right - left), a, b);
    };
    svg.addEventListener("pointerdown", event => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      from = pointed(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", event => {
      cursor = pointed(event);
      const [a, b] = range();
      const X = px => left + (px - a) * (right - left) / (b - a);
      const ends = from === null ? [0, 0] : [X(Math.min(from, cursor)), X(Math.max(from, cursor))];
      chosen.setAttribute("x", ends[0]);
      chosen.setAttribute("width", ends[1] - ends[0]);
      say();
    });
    svg.addEventListener("pointerup", event => {
      const until = pointed(event);
      const [a, b] = range();
      if (from !== null && Math.abs(until - from) > (b - a) / 100) {
        zoom(ofPx(Math.min(from, until)), ofPx(Math.max(from, until)));
      }
      from = null;
      chosen.setAttribute("width", 0);
    });
    svg.addEventListener("pointerleave", () => { cursor = null; say(); });
    svg.addEventListener("dblclick", () => zoom(x0, x1));
    view.addEventListener("keydown", event => {
      const [a, b] = range();
      const [low, high] = [ofPx(a), ofPx(b)];
      const middle = cursor === null ? (low + high) / 2 : ofPx(cursor);
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const around = length => zoom(middle - length / 2, middle + length / 2);
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (way && event.shiftKey) {
        const by = clamp(way * (high - low) / 4, x0 - low, x1 - high);
        if (shown.has(figure.id)) zoom(low + by, high + by);
      } else if (way) {
        const all = series.flatMap(one => one.isDots ? [] : one.points.map(point => point[0]))
          .filter(x => x >= a - 0.1 && x <= b + 0.1).sort((p, q) => p - q);
        const now = cursor ?? (way > 0 ? -Infinity : Infinity);
        const next = way > 0 ? all.find(x => x > now + 0.05) : all.findLast(x => x < now - 0.05);
        cursor = next ?? cursor;
        say();
      } else if (event.key === "+" || event.key === "=") around((high - low) / 2);
      else if (event.key === "-") around((high - low) * 2);
      else if (event.key === "Escape") zoom(x0, x1);
      else return;
      event.preventDefault();
    });
    if (shown.has(figure.id)) zoom(...shown.get(figure.id));
  };
  const all = () => document.querySelectorAll("figure").forEach(begin);
  all();
  addEventListener("drawn", all);
}
