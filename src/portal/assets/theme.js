// Before anything is drawn: the theme that was chosen here, if one was.
"use strict";
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") {
  document.documentElement.dataset.theme = chosen;
}
