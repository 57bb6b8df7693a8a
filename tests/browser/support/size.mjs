// How large a page is: its width against that of the window, and its bytes.

/**
 * The widths of the page and of the window; the last cells of table rows that are not wholly inside the window; and the boxes
 * of tables that scroll, so that inner columns are covered by the last one, which sticks.
 */
export const measure = (page) => page.evaluate(() => {
  const { scrollWidth, clientWidth } = document.scrollingElement;
  const visible = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());
  const cutOff = visible('main tr > :last-child').filter((cell) => {
    const { left, right } = cell.getBoundingClientRect();
    return left < 0 || right > innerWidth + 1;
  });
  const covered = visible('main .scroll').filter((box) => box.scrollWidth > box.clientWidth);
  return {
    scrollWidth,
    clientWidth,
    cutOff: cutOff.map((cell) => cell.outerHTML.slice(0, 100)),
    covered: covered.map((box) => `${box.getAttribute('aria-label')} is ${box.scrollWidth} wide in ${box.clientWidth}`),
  };
});

/** The bytes of the page's body and of those of everything that it loaded, from the cache or not. */
export const bytes = (page) => page.evaluate(() => {
  const [first] = performance.getEntriesByType('navigation');
  const loaded = [first, ...performance.getEntriesByType('resource')];
  return loaded.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0);
});
