// Applies the theme that the user has chosen, before the page is drawn.
"use strict";
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") {
  document.documentElement.dataset.theme = chosen;
}
