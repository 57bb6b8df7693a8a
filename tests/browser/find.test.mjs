// Finding a failed request by filters, with times in the reader's time zone, and downloading what was found.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ORIGIN } from './support/gateway.mjs';
import { resident } from './support/places.mjs';
import { clickTo, follow, go, named, textOf } from './support/visitor.mjs';

const ZONE = 'Asia/Tokyo'; // UTC+9, without daylight saving time
const HOURS = 9;

const moments = (page) => page.$$eval('main tbody th time', (all) =>
  all.map(({ dateTime, title, innerText }) => ({ dateTime, title, innerText })));

/** "16 Nov 2026, 14:30:05" of a UTC time, so many hours later. */
function written(dateTime, hours) {
  const [day, time] = new Date(Date.parse(dateTime) + hours * 3_600_000).toISOString().split('T');
  const [year, month, date] = day.split('-').map(Number);
  const name = new Date(Date.UTC(2000, month - 1)).toLocaleString('en-US', { month: 'short', timeZone: 'UTC' });
  return `${date} ${name} ${year}, ${time.slice(0, 8)}`;
}

test('a failed request is found by links and by the form', async (t) => {
  const page = await resident(t);
  await go(page, '/portal/requests');
  await clickTo(page, 'link', 'Last 24 hours');
  await clickTo(page, 'link', 'Errors only');
  const ended = await page.$$eval('main tbody td:last-child', (cells) => cells.map(({ textContent }) => textContent));
  assert.equal(ended.filter((text) => text === 'Failed').length, 1, ended.join());
  assert.ok(ended.length > 1 && !ended.includes('Answered'), 'refused requests are errors too');
  await follow(page, () => page.click('main tbody a[href*="/call_"]'));
  assert.match(await textOf(page), /The model could not answer/);
  // The form keeps the period, and adds to it.
  await go(page, '/portal/requests?last=24h');
  await page.select('[name="outcome"]', 'provider_failed');
  await page.type('[name="model"]', 'svc-native-fast');
  await clickTo(page, 'button', 'Show');
  assert.equal((await moments(page)).length, 1);
  assert.equal(new URL(page.url()).search, '?last=24h&model=svc-native-fast&outcome=provider_failed');
  await page.select('[name="outcome"]', 'lost');
  await clickTo(page, 'button', 'Show');
  assert.match(await textOf(page), /No matching requests/);
});

test("times are in the reader's time zone, and fields for times too", async (t) => {
  const page = await resident(t);
  await page.emulateTimezone(ZONE);
  await go(page, '/portal/requests');
  const shown = await moments(page);
  assert.ok(shown.length > 5);
  for (const { dateTime, title, innerText } of shown) {
    assert.equal(title, `${written(dateTime, 0)} UTC`);
    assert.equal(innerText, written(dateTime, HOURS));
  }
  assert.match(await textOf(page), /Times are in your time zone, Asia\/Tokyo/);
  // From a local time on, which the address has in UTC and the field again as it was entered.
  const latest = new Date(Date.parse(shown[0].dateTime) + HOURS * 3_600_000).toISOString().slice(0, 19);
  await page.$eval('[name="from"]', (field, value) => { field.value = value; }, latest);
  await clickTo(page, 'button', 'Show');
  assert.equal(new URL(page.url()).searchParams.get('from'), shown[0].dateTime);
  assert.equal(await page.$eval('[name="from"]', ({ value }) => new Date(`${value}Z`).toISOString().slice(0, 19)), latest);
  const found = await moments(page);
  assert.ok(found.length > 0 && found.every(({ dateTime }) => dateTime >= shown[0].dateTime));
});

test('without scripts times are in UTC and say so, and the filters work', async (t) => {
  const page = await resident(t, { script: false });
  await go(page, '/portal/requests?outcome=errors');
  for (const { dateTime, innerText } of await moments(page)) assert.equal(innerText, `${written(dateTime, 0)} UTC`);
  const text = await textOf(page);
  assert.match(text, /Times are in UTC/);
  assert.match(text, /From \(UTC\)/);
  await page.type('[name="model"]', 'svc-basic');
  await clickTo(page, 'button', 'Show');
  assert.match(await textOf(page), /No matching requests/);
});

test('the list can be downloaded as CSV', async (t) => {
  const page = await resident(t);
  await go(page, '/portal/requests?outcome=errors');
  const link = await named(page, 'link', 'Download as CSV');
  const csv = await link.evaluate(async ({ href }) => (await fetch(href)).text());
  const lines = csv.trimEnd().split('\r\n');
  assert.ok(lines.some((line) => line.includes(',provider_failed,')), csv);
  const refused = lines.filter((line) => line.includes(',refused,'));
  assert.ok(refused.length > 0 && refused.every((line) => /,[45]\d\d,\w+,/.test(line)), csv);
  assert.ok(!csv.includes(',answered,'), csv);
  const href = await link.evaluate((one) => one.href);
  assert.equal(href, `${ORIGIN}/portal/requests.csv?outcome=errors`);
});

test('usage of the last hour is shown by minute, and other days can be chosen', async (t) => {
  const page = await resident(t);
  await go(page, '/portal/usage');
  await clickTo(page, 'link', 'Last hour');
  assert.match(await textOf(page), /Cost by minute/);
  assert.match(await textOf(page), /Usage by minute/);
  await (await page.$('main summary')).click();
  const today = new Date().toISOString().slice(0, 10);
  await page.$eval('[name="from"]', (field, value) => { field.value = value; }, today);
  await page.$eval('[name="to"]', (field, value) => { field.value = value; }, today);
  await clickTo(page, 'button', 'Show');
  assert.match(await textOf(page), /Usage by day/);
  assert.equal(new URL(page.url()).searchParams.get('from'), today);
});
