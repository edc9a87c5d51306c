// What scrolls sideways can be reached and scrolled with the keyboard.
addEventListener("DOMContentLoaded", () => {
  for (const one of document.querySelectorAll("pre, .table-wrapper, .formula, .cell_output, .output")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  }
});
