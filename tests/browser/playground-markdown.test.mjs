// Markdown of answers: what it is shown as, and that nothing of it runs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resident } from './support/places.mjs';
import { go, photograph, wearTheme } from './support/visitor.mjs';

/** Renders a text and returns its HTML. */
async function html(page, text) {
  return page.evaluate((text) => {
    const body = document.createElement('div');
    body.className = 'answer';
    body.append(...markdown(text));
    document.querySelector('#conversation').replaceChildren(body);
    return body.innerHTML;
  }, text);
}

test('Markdown is shown as it is meant', async (t) => {
  const page = await resident(t);
  await go(page, '/portal/playground');
  for (const [text, expected] of [
    ['# One\n## Two\n#### Three\n# Four', '<h3>One</h3><h4>Two</h4><h5>Three</h5><h3>Four</h3>'],
    ['a **bold** and *thin* `co<de>` ~~no~~ snake_case_name 2*3*4', '<p>a <strong>bold</strong> and <em>thin</em> '
      + '<code>co&lt;de&gt;</code> <del>no</del> snake_case_name 2<em>3</em>4</p>'],
    ['***both*** \\*not\\*', '<p><strong><em>both</em></strong> *not*</p>'],
    ['one\ntwo\n\nthree', '<p>one<br>two</p><p>three</p>'],
    ['- a\n- b\n  - c\n  - d\n- e', '<ul><li>a</li><li>b<ul><li>c</li><li>d</li></ul></li><li>e</li></ul>'],
    ['3. a\n4. b', '<ol start="3"><li>a</li><li>b</li></ol>'],
    ['> quoted\n> more', '<blockquote><p>quoted<br>more</p></blockquote>'],
    ['a\n\n---\n\nb', '<p>a</p><hr><p>b</p>'],
    ['[x](https://example.com/a_b)', '<p><a href="https://example.com/a_b" rel="noopener noreferrer" target="_blank">x</a></p>'],
    ['see (https://example.com/a), https://example.com/a_(b).', '<p>see (<a href="https://example.com/a" rel="noopener noreferrer" '
      + 'target="_blank">https://example.com/a</a>), <a href="https://example.com/a_(b)" rel="noopener noreferrer" '
      + 'target="_blank">https://example.com/a_(b)</a>.</p>'],
    ['  - a\n  - b\n    1. c', '<ul><li>a</li><li>b<ol start="1"><li>c</li></ol></li></ul>'],
  ]) assert.equal(await html(page, text), expected, text);
  const table = await html(page, '| a | b |\n|---|---|\n| 1 | **2** |');
  assert.match(table, /<th scope="col">a<\/th>.*<td>1<\/td><td><strong>2<\/strong><\/td>/);
  const code = await html(page, '```js\nlet a = "<b>";\n\n# no heading\n```\nafter');
  assert.match(code, /<pre tabindex="0" aria-label="Code, js"><code>let a = "&lt;b&gt;";\n\n# no heading<\/code><\/pre>.*<p>after<\/p>/s);
  assert.match(code, /data-copy/);
  for (const theme of ['light', 'dark']) {
    await wearTheme(page, theme);
    await html(page, '# Toll gates\n\nA **toll gate** charges, see [docs](https://example.com):\n\n1. stop\n2. pay `$2`\n   - cash\n'
      + '   - card\n\n> Quoted\n\n| Road | Price |\n|---|---|\n| A1 | $2 |\n\n```python\nprint("go")\n```');
    await photograph(page, `playground-markdown-${theme}`);
  }
});

test('hostile Markdown is shown as text and does nothing', async (t) => {
  const page = await resident(t);
  await go(page, '/portal/playground');
  const hostile = [
    '<script>window.hacked = 1</script>',
    '<img src=x onerror="window.hacked = 1">',
    '[click](javascript:window.hacked=1)',
    '[click](JaVaScRiPt:window.hacked=1)',
    '[click]( java\tscript:alert(1))',
    '[click](data:text/html,<script>window.hacked=1</script>)',
    '[click](vbscript:x) <javascript:window.hacked=1>',
    '![x](javascript:window.hacked=1)',
    '# <svg onload="window.hacked=1">',
    '- <iframe src="javascript:window.hacked=1">',
    '| <b onclick=x> | b |\n|---|---|\n| <style>*{display:none}</style> | [x](/portal/sign-out) |',
    '```"><script>window.hacked=1</script>\n</code></pre><script>window.hacked=1</script>\n```',
    '[a](https://example.com/"onmouseover="window.hacked=1)',
  ].join('\n\n');
  await html(page, hostile);
  const found = await page.evaluate(() => {
    const inside = [...document.querySelectorAll('#conversation *')];
    return {
      tags: [...new Set(inside.map(({ localName }) => localName))].sort(),
      links: inside.filter(({ localName }) => localName === 'a').map(({ protocol }) => protocol),
      handlers: inside.flatMap(({ attributes }) => [...attributes].map(({ name }) => name).filter((name) => /^on|style/.test(name))),
      hacked: window.hacked,
      text: document.querySelector('#conversation').textContent,
    };
  });
  assert.equal(found.hacked, undefined);
  assert.deepEqual(found.handlers, []);
  assert.deepEqual(found.links.filter((protocol) => protocol !== 'https:'), []);
  for (const tag of ['script', 'img', 'svg', 'iframe', 'style', 'b']) assert.ok(!found.tags.includes(tag), tag);
  for (const words of ['<script>window.hacked = 1</script>', 'onerror=', 'javascript:window.hacked=1', '<iframe']) {
    assert.ok(found.text.includes(words), `${words} is shown`);
  }
});

test('a long hostile text takes no long time', async (t) => {
  const page = await resident(t);
  await go(page, '/portal/playground');
  for (const unit of ['*', '_', '`', '[', '![', '<', '[a](', '**a', '- ', '> ', '|', '#', '~~', '\\', 'https://', '  - a\n', '`a``', '- - ']) {
    const took = await page.evaluate((unit) => {
      const from = performance.now();
      markdown(unit.repeat(40_000 / unit.length));
      markdown(`${unit.repeat(20_000 / unit.length)}\n`.repeat(2));
      return performance.now() - from;
    }, unit);
    assert.ok(took < 2000, `${unit}: ${Math.round(took)} ms`);
  }
});
