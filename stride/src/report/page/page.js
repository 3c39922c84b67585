'use strict';
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  const dark = document.getElementById('dark');
  const theme = document.getElementById('theme');
  let isDark = matchMedia('(prefers-color-scheme: dark)').matches;
  theme.hidden = false;
  theme.onclick = () => {
    isDark = !isDark;
    dark.media = isDark ? 'screen' : 'not all';
  };

  // Shows one part of a choice at a time: first the one with the most curves.
  for (const choice of all('.choice')) {
    const parts = all(':scope > section', choice);
    if (parts.length < 2) continue;
    const label = document.createElement('label');
    const select = document.createElement('select');
    label.className = 'pick';
    label.append(`${choice.dataset.name}: `, select);
    parts.forEach((part) => select.add(new Option(part.dataset.name)));
    select.onchange = () => parts.forEach((part, at) => { part.hidden = at !== select.selectedIndex; });
    const curves = parts.map((part) => all('g', part).length);
    select.selectedIndex = curves.indexOf(Math.max(...curves));
    select.onchange();
    choice.prepend(label);
    choice.classList.add('chosen');
  }

  // Shows the results of a pair beside its heat map.
  for (const mesh of all('.mesh')) {
    const panel = mesh.querySelector('.pair');
    const table = mesh.querySelector('.pairs');
    const rows = new Map();
    for (const row of table.tBodies[0].rows) {
      const pair = `#p${row.dataset.pair}`;
      rows.set(pair, [...(rows.get(pair) ?? []), row]);
    }
    for (const link of all('.map a', mesh)) {
      link.onclick = (event) => {
        event.preventDefault();
        all('.map a.chosen', mesh).forEach((other) => other.classList.remove('chosen'));
        const pair = link.getAttribute('href');
        all(`.map a[href="${pair}"]`, mesh).forEach((other) => other.classList.add('chosen'));
        const [first] = rows.get(pair);
        const title = document.createElement('h3');
        title.textContent = `${first.cells[0].textContent} → ${first.cells[1].textContent}`;
        const copy = table.cloneNode();
        const cut = (row) => {
          const part = row.cloneNode(true);
          part.removeAttribute('id');
          part.cells[0].remove();
          part.cells[0].remove();
          return part;
        };
        copy.className = 'one';
        copy.createTHead().append(cut(table.tHead.rows[0]));
        copy.createTBody().append(...rows.get(pair).map(cut));
        const scroll = document.createElement('div');
        scroll.className = 'scroll';
        scroll.append(copy);
        panel.replaceChildren(title, scroll);
        panel.hidden = false;
      };
    }
  }

  // Describes the point that is nearest to the pointer.
  const tip = document.getElementById('tip');
  for (const svg of all('.chart svg')) {
    const points = all('circle', svg).map((circle) => {
      const title = circle.firstElementChild;
      title.remove();
      return {circle, x: +circle.getAttribute('cx'), y: +circle.getAttribute('cy'), text: title.textContent};
    });
    let near = null;
    const leave = () => {
      near?.circle.classList.remove('near');
      near = null;
      tip.hidden = true;
    };
    svg.onpointerleave = leave;
    svg.onpointermove = (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const far = (point) => Math.hypot(point.x - at.x, point.y - at.y);
      leave();
      const found = points.reduce((one, other) => (one && far(one) <= far(other) ? one : other), null);
      if (!found || far(found) > 40) return;
      near = found;
      near.circle.classList.add('near');
      tip.textContent = near.text;
      tip.hidden = false;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, room))}px`;
      tip.style.top = `${Math.max(8, event.clientY - tip.offsetHeight - 14)}px`;
    };
  }

  addEventListener('beforeprint', () => all('details:not(.long)').forEach((part) => { part.open = true; }));
})();
