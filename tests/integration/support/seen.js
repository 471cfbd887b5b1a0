(() => {
  const found = { counts: [], unnamed: [], faint: [], outside: [] };
  const all = (from, what) => [...from.querySelectorAll(what)];
  const figures = all(document, 'figure');

  for (const figure of figures) {
    const rows = all(figure, 'table')[0] ? all(all(figure, 'table')[0], 'tbody tr') : [];
    for (const path of all(figure, 'path[data-points]')) {
      const name = path.getAttribute('data-series');
      const said = path.getAttribute('data-points');
      const d = path.getAttribute('d');
      const isArea = d.endsWith('Z');
      const drawn = (d.match(/[MLV]/g) || []).length;
      const row = rows.find(row => row.cells[0].textContent === name);
      if (!isArea && String(drawn) !== said) found.counts.push([figure.id, name, drawn, said]);
      if (isArea && drawn !== 2 * said - 1) found.counts.push([figure.id, name, drawn, said]);
      if (!row || row.cells[2].textContent !== said) found.counts.push([figure.id, name, 'table']);
    }
    const svg = figure.querySelector('svg');
    const ids = (svg.getAttribute('aria-labelledby') || '').split(' ');
    const texts = ids.map(id => document.getElementById(id)?.textContent || '');
    if (svg.getAttribute('role') !== 'img' || texts.length < 2 || texts.some(text => !text))
      found.unnamed.push([figure.id, 'title']);
    if (!all(svg, 'text').length) found.unnamed.push([figure.id, 'labels']);
    if (!figure.querySelector('details table tbody tr')) found.unnamed.push([figure.id, 'table']);
    const box = svg.getBoundingClientRect();
    const labels = all(svg, 'text').map(text => [text.textContent, text.getBoundingClientRect()])
      .filter(([, box]) => box.width > 0);
    labels.forEach(([text, a], at) => {
      if (a.left < box.left - 1 || a.right > box.right + 1 || a.bottom > box.bottom + 1)
        found.outside.push([figure.id, 'label', text]);
      for (const [other, b] of labels.slice(at + 1))
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
          found.outside.push([figure.id, 'labels collide', text, other]);
    });
  }

  if (!document.documentElement.lang) found.unnamed.push('language');
  for (const box of all(document, '.scroll'))
    if (box.tabIndex !== 0 || !box.getAttribute('aria-label')) found.unnamed.push('scroll box');
  const ids = all(document, '[id]').map(element => element.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach(id => found.unnamed.push(['twice', id]));
  for (const table of all(document, 'table'))
    if (!table.caption || all(table, 'th:not([scope])').length) found.unnamed.push('table');

  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width)
    found.outside.push(['page', document.documentElement.scrollWidth, width]);

  const numbers = colour => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (a > 0 && b !== undefined) return [r, g, b];
    }
    return [255, 255, 255];
  };
  for (const element of all(document, 'h1,h2,h3,p,li,dt,dd,th,td,caption,summary,a,figcaption,svg text')) {
    if (element.classList.contains('cell')) continue;
    const isDrawn = element instanceof SVGElement;
    const style = getComputedStyle(element);
    const ink = numbers(isDrawn ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(element))].sort((a, b) => b - a);
    if ((a + 0.05) / (b + 0.05) < 4.5)
      found.faint.push([element.tagName, element.textContent.slice(0, 30), ink]);
  }
  return {
    ...found,
    figures: figures.length,
    scripts: document.scripts.length,
    dark: luminance(behind(document.body)) < 0.2,
  };
})()
