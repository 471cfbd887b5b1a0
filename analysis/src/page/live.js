// The page of a run while it runs: the server sends its body anew.
"use strict";
{
  const main = document.getElementById("page");
  const state = document.getElementById("state");
  const say = text => { state.textContent = text; };
  // What the reader has opened, and where the reader is, stay.
  const show = text => {
    const opened = [...main.querySelectorAll("details[open]")].map(one => one.parentElement.id);
    const active = document.activeElement;
    const focused = active?.closest?.("figure")?.id;
    const what = active?.matches(".view") ? ".view" : "summary";
    const at = [scrollX, scrollY];
    main.innerHTML = text;
    for (const id of opened) {
      document.getElementById(id)?.querySelector("details")?.setAttribute("open", "");
    }
    dispatchEvent(new Event("drawn"));
    if (focused) document.getElementById(focused)?.querySelector(what)?.focus();
    scrollTo(...at);
  };
  const events = new EventSource("events");
  events.addEventListener("page", event => {
    show(event.data);
    say("under way");
  });
  events.addEventListener("end", event => {
    events.close();
    show(event.data);
    say("ended");
  });
  events.addEventListener("error", () => say("the program does not answer; asking it again"));
}
