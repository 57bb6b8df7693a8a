// Shows times in the time zone of the reader. Without this script they are in UTC, as their titles always are.
"use strict";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const isUtc = (date) => date.getTimezoneOffset() === 0;
const two = (number) => String(number).padStart(2, "0");
const month = new Intl.DateTimeFormat("en-US", { month: "short" });

function shown(date, to) {
  const parts = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two);
  const time = parts.slice(0, to === "minute" ? 2 : 3).join(":");
  return `${date.getDate()} ${month.format(date)} ${date.getFullYear()}, ${time}`;
}

function showTimes() {
  for (const time of document.querySelectorAll('time[datetime$="Z"]:not([data-shown])')) {
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.getTime()) || isUtc(date)) continue;
    time.dataset.shown = "";
    time.textContent = shown(date, time.dataset.to);
  }
  if (isUtc(new Date())) return;
  // The axes of charts, and what says that times without this script are in UTC.
  for (const mark of document.querySelectorAll("svg [data-time]:not([data-shown])")) {
    const date = new Date(mark.dataset.time);
    mark.dataset.shown = "";
    mark.textContent = [date.getHours(), date.getMinutes()].map(two).join(":");
  }
  for (const zone of document.querySelectorAll("th > [data-zone], figcaption > [data-zone]")) zone.hidden = true;
  for (const note of document.querySelectorAll("[data-zone-note]")) {
    note.textContent = `Times are in your time zone, ${zone}; hover over one to see UTC.`;
  }
}

// Fields for times hold UTC. They are edited in the time zone of the reader and sent in UTC.
function timeFields() {
  const fields = document.querySelectorAll("input[data-utc]");
  for (const field of fields) {
    const label = field.closest("label").querySelector("[data-zone]");
    if (label && !isUtc(new Date())) label.hidden = true;
    // Not the value, which browsers restore when a page is reloaded.
    const written = field.defaultValue;
    if (!written) continue;
    const date = new Date(`${written}Z`);
    const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
    field.dataset.shown = `${day}T${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
    field.value = field.dataset.shown;
  }
  for (const form of new Set([...fields].map((field) => field.form))) {
    form.addEventListener("formdata", ({ formData }) => {
      for (const field of form.querySelectorAll("input[data-utc]")) {
        // Unchanged, it stays what it was: an hour that the clock has twice would not come back.
        const isUnchanged = field.value !== "" && field.value === field.dataset.shown;
        const date = new Date(isUnchanged ? `${field.defaultValue}Z` : field.value);
        if (!Number.isNaN(date.getTime())) formData.set(field.name, `${date.toISOString().slice(0, 19)}Z`);
      }
      // Empty fields make long URLs.
      for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
    });
  }
}

showTimes();
timeFields();
document.addEventListener("htmx:after:swap", showTimes);
