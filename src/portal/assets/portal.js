// Enhancements of pages that work without scripts: copy buttons, the theme switch.
"use strict";

function enableCopy(button) {
  button.hidden = false;
  const label = button.querySelector("[data-copy-label]");
  const verb = label.textContent;
  button.addEventListener("click", async () => {
    const text = button.closest(".copyable").querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      label.textContent = "Copied";
    } catch {
      label.textContent = "Select and copy it yourself";
    }
    setTimeout(() => { label.textContent = verb; }, 2000);
  });
}

function copyButtons() {
  for (const button of document.querySelectorAll("[data-copy]")) enableCopy(button);
}

function theme() {
  const button = document.querySelector("[data-theme-switch]");
  if (!button) return;
  button.hidden = false;
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const show = () => { button.textContent = now() === "dark" ? "Light" : "Dark"; };
  show();
  dark.addEventListener("change", show);
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    show();
  });
}

// The tab may be used by another person next.
function signingOut() {
  const form = document.querySelector('form[action="/portal/sign-out"]');
  form?.addEventListener("submit", () => sessionStorage.removeItem("playground"));
}

function printing() {
  for (const button of document.querySelectorAll("[data-print]")) {
    button.hidden = false;
    button.addEventListener("click", () => print());
  }
}

copyButtons();
printing();
theme();
signingOut();
