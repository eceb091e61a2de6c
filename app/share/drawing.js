// A part of the page as SVG, as it is on the screen: text where it stands, boxes with their ground,
// the charts' own SVG, canvases and images. A map of few points is drawn point by point.
const MOST_CIRCLES = 5000, WIDEST = 2; // points of a map, and pixels from line to line of a text
const CONTROLS = [
    'stButton', 'stDownloadButton', 'stButtonGroup', 'stSelectbox', 'stMultiSelect', 'stTextInput',
    'stNumberInput', 'stTextArea', 'stRadio', 'stCheckbox', 'stSlider', 'stPopover', 'stPageLink',
    'stElementToolbar', 'stTooltipIcon', 'stTooltipHoverTarget', 'stHeaderActionElements',
    'stProgress', 'stSpinner', 'stAlertDynamicIcon', 'stIconMaterial', 'stFileUploader', 'stCode',
].map(id => `[data-testid=${id}]`);
// What is there to be used and not to be seen.
const LEFT_OUT = [...CONTROLS, '[role=toolbar]', '[role=tooltip]', '.modebar-container', '.share',
    '.lc-card', 'script', 'style', 'textarea', 'input', '.katex-mathml'].join();
const INHERITED = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray',
    'stroke-opacity', 'stroke-linecap', 'stroke-linejoin', 'opacity', 'font-family', 'font-size',
    'font-weight', 'font-style', 'text-anchor', 'dominant-baseline', 'visibility', 'display',
    'paint-order'];
const COLOURS = new Set(['fill', 'stroke']);

const shape = (name, attributes = {}, ...inside) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes))
        made.setAttribute(key, typeof value === 'number' ? Math.round(100 * value) / 100 : value);
    made.append(...inside);
    return made;
};

const brush = Object.assign(document.createElement('canvas'), { width: 1, height: 1 })
    .getContext('2d', { willReadFrequently: true });
const known = new Map();

// A colour as every program reads it; null where nothing is to be seen.
const plain = colour => {
    if (/^(rgb\(|#|none|url)/.test(colour)) return colour;
    if (!known.has(colour)) {
        brush.clearRect(0, 0, 1, 1);
        brush.fillStyle = colour;
        brush.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
        known.set(colour, !a ? null : a === 255 ? `rgb(${r}, ${g}, ${b})`
            : `rgba(${r}, ${g}, ${b}, ${(a / 255).toFixed(3)})`);
    }
    return known.get(colour);
};

const asData = async blob => new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
});

class Drawing {
    // frame: the rectangle on the screen that becomes the whole picture.
    constructor(frame) {
        this.frame = frame;
        this.fonts = new Set();
        this.waiting = [];
        this.top = Infinity; // of what can be seen, on the screen
        this.bottom = -Infinity;
    }

    at({ left, top, width, height }) {
        return { x: left - this.frame.left, y: top - this.frame.top, width, height };
    }

    // Add what can be seen in a box of the screen.
    put(into, box, ...shapes) {
        this.top = Math.min(this.top, box.top);
        this.bottom = Math.max(this.bottom, box.top + box.height);
        into.append(...shapes);
    }

    draw(part, into) {
        if (part.nodeType === Node.TEXT_NODE) return this.text(part, into);
        if (part.nodeType !== Node.ELEMENT_NODE || part.matches(LEFT_OUT)) return;
        const style = getComputedStyle(part), box = part.getBoundingClientRect();
        if (style.display === 'none' || style.visibility === 'hidden' || style.opacity === '0') return;
        const hides = style.overflowX !== 'visible' || style.overflowY !== 'visible';
        if (hides && box.width <= 1 && box.height <= 1) return; // for screen readers alone
        if (Number(style.opacity) < 1)
            into.append(into = shape('g', { opacity: style.opacity }));
        if (part.localName === 'svg') return this.svg(part, box, into);
        this.box(style, box, into);
        if (part.localName === 'canvas') return this.canvas(part, box, into);
        if (part.localName === 'img') return this.image(part, box, into);
        if (hides) {
            const id = `clip-${Math.random().toString(36).slice(2)}`;
            into.append(shape('clipPath', { id }, shape('rect', this.at(box))),
                into = shape('g', { 'clip-path': `url(#${id})` }));
        }
        for (const inside of part.childNodes) this.draw(inside, into);
    }

    // The ground and the border of a box.
    box(style, box, into) {
        const where = { ...this.at(box), rx: Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2) };
        const ramp = /^linear-gradient\((?:90deg|to right), (.*)\)$/.exec(style.backgroundImage);
        let ground = plain(style.backgroundColor);
        if (ramp) {
            const stops = ramp[1].match(/rgba?\([^)]*\)/g) ?? [];
            const id = `ramp-${Math.random().toString(36).slice(2)}`;
            into.append(shape('linearGradient', { id }, ...stops.map((colour, i) => shape('stop', {
                offset: i / Math.max(stops.length - 1, 1), 'stop-color': colour }))));
            ground = `url(#${id})`;
        }
        if (ground && box.width && box.height) this.put(into, box, shape('rect', { ...where, fill: ground }));
        const sides = ['Top', 'Right', 'Bottom', 'Left'].map(side => ({
            width: style[`border${side}Style`] === 'none' ? 0 : parseFloat(style[`border${side}Width`]),
            colour: plain(style[`border${side}Color`]) }));
        const [first] = sides, { x, y, width, height } = where;
        if (sides.every(side => side.width === first.width && side.colour === first.colour)) {
            if (first.width && first.colour) this.put(into, box, shape('rect', {
                ...where, x: x + first.width / 2, y: y + first.width / 2,
                width: Math.max(width - first.width, 0), height: Math.max(height - first.width, 0),
                fill: 'none', stroke: first.colour, 'stroke-width': first.width }));
            return;
        }
        const ends = [[x, y, x + width, y], [x + width, y, x + width, y + height],
            [x, y + height, x + width, y + height], [x, y, x, y + height]];
        sides.forEach(({ width: thick, colour }, i) => {
            const [x1, y1, x2, y2] = ends[i];
            if (thick && colour) this.put(into, box, shape('line', {
                x1, y1, x2, y2, stroke: colour, 'stroke-width': thick }));
        });
    }

    // A text, line by line, as wide as on the screen whatever fonts there are elsewhere.
    text(node, into) {
        const parent = node.parentElement, style = getComputedStyle(parent);
        if (!node.data.trim() || /Material/.test(style.fontFamily)) return;
        const range = document.createRange(), lines = [];
        const add = (start, end) => {
            range.setStart(node, start);
            range.setEnd(node, end);
            const rects = [...range.getClientRects()].filter(rect => rect.width || rect.height);
            if (rects.length > 1 && end - start > 1) // a word that is broken
                return [...node.data.slice(start, end)].reduce((from, letter) => {
                    add(from, from + letter.length);
                    return from + letter.length;
                }, start);
            const [rect] = rects, line = lines.at(-1);
            if (!rect) return;
            if (line && Math.abs(line.top - rect.top) < WIDEST && rect.left >= line.left)
                Object.assign(line, { end, right: rect.right });
            else lines.push({ start, end, left: rect.left, right: rect.right, top: rect.top, height: rect.height });
        };
        const upright = style.writingMode.startsWith('vertical');
        if (upright) {
            range.selectNodeContents(node);
            const { left, top, width, height } = range.getBoundingClientRect();
            lines.push({ start: 0, end: node.data.length, left, right: left + width, top, height });
        } else for (const word of node.data.matchAll(/\S+/g)) add(word.index, word.index + word[0].length);
        const font = { 'font-family': style.fontFamily, 'font-size': style.fontSize,
            'font-weight': style.fontWeight, 'font-style': style.fontStyle };
        this.fonts.add(style.fontFamily.split(',')[0].replace(/["']/g, ''));
        brush.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
        const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = brush.measureText('x');
        const halo = style.textShadow === 'none' ? null : /rgba?\([^)]*\)|color\([^)]*\)/.exec(style.textShadow)?.[0];
        for (const line of lines) {
            const { x, y, width, height } = this.at({ ...line, width: line.right - line.left });
            const said = node.data.slice(line.start, line.end).replace(/\s+/g, ' ');
            const turned = style.transform.startsWith('matrix(-1') ? -90 : 90;
            const place = upright ? {
                transform: `translate(${x + width / 2} ${y + height / 2}) rotate(${turned})`,
                'text-anchor': 'middle', 'dominant-baseline': 'central',
            } : { x, y: y + (height - up - down) / 2 + up, textLength: width, lengthAdjust: 'spacingAndGlyphs' };
            this.put(into, line, shape('text', {
                ...place, ...font, fill: plain(style.color) ?? 'none',
                ...style.textDecorationLine === 'underline' ? { 'text-decoration': 'underline' } : {},
                ...halo ? { stroke: plain(halo), 'stroke-width': 3.5, 'stroke-linejoin': 'round',
                    'paint-order': 'stroke' } : {},
            }, said));
        }
    }

    // A picture that is SVG already, with the styles that the page's rules give it.
    svg(part, box, into) {
        const copy = part.cloneNode(true), { x, y, width, height } = this.at(box);
        const copies = [copy, ...copy.querySelectorAll('*')];
        [part, ...part.querySelectorAll('*')].forEach((original, i) => {
            const style = getComputedStyle(original), own = copies[i];
            own.removeAttribute('class');
            own.setAttribute('style', INHERITED.map(name => {
                const value = style.getPropertyValue(name);
                return `${name}:${COLOURS.has(name) ? plain(value) ?? 'none' : value.replace(/"/g, "'")}`;
            }).join(';'));
            for (const { name } of [...own.attributes]) if (name.startsWith('on')) own.removeAttribute(name);
        });
        for (const [name, value] of Object.entries({ x, y, width, height })) copy.setAttribute(name, value);
        copy.setAttribute('overflow', getComputedStyle(part).overflow);
        this.put(into, box, copy);
    }

    canvas(part, box, into) {
        const panel = part.closest('.lc-map')?.codeMap?.panels.find(one => one.canvas === part);
        if (panel && panel.map.data.n <= MOST_CIRCLES) return this.points(panel, box, into);
        this.put(into, box, shape('image', { ...this.at(box), href: part.toDataURL() }));
    }

    // The points of a map, each with the size and the strength that it has on the screen.
    points(panel, box, into) {
        const { map } = panel, { data, values, selected, legend: { hidden } } = map;
        const zoom = panel.plot.get('camera').scaling[0], { x, y } = this.at(box);
        const r = data.size * Math.asinh(Math.max(1, zoom)) / Math.asinh(1) / 2;
        const chosen = new Set(selected), look = map.look(data, values);
        const group = shape('g', { 'data-points': data.n });
        const order = [...values.keys()].sort((a, b) => chosen.has(a) - chosen.has(b) || a - b);
        for (const i of order) {
            const [left, top] = panel.position(i);
            if (hidden.has(values[i]) || left < -r || top < -r || left > box.width + r || top > box.height + r) continue;
            const faint = chosen.size && !chosen.has(i) ? look.opacityInactiveScale : 1;
            group.append(shape('circle', { cx: x + left, cy: y + top, r, fill: data.colour.colors[values[i]],
                'fill-opacity': look.opacity * faint }));
        }
        this.put(into, box, group);
    }

    image(part, box, into) {
        const image = shape('image', { ...this.at(box), href: '' });
        this.waiting.push(fetch(part.currentSrc || part.src).then(answer => answer.blob()).then(asData)
            .then(data => image.setAttribute('href', data)));
        this.put(into, box, image);
    }

    // The fonts of the page, of formulas above all, that were used: as rules that carry them.
    async rules() {
        const rules = [...document.styleSheets].flatMap(sheet => {
            try { return [...sheet.cssRules].map(rule => ({ rule, base: sheet.href ?? location.href })); } catch { return []; }
        }).filter(({ rule }) => rule instanceof CSSFontFaceRule
            && this.fonts.has(rule.style.getPropertyValue('font-family').replace(/["']/g, ''))
            && /^KaTeX/.test(rule.style.getPropertyValue('font-family').replace(/["']/g, '')));
        return Promise.all(rules.map(async ({ rule, base }) => {
            const address = /url\("?([^")]*woff2)"?\)/.exec(rule.style.getPropertyValue('src'))?.[1];
            if (!address) return '';
            const data = await asData(await (await fetch(new URL(address, base))).blob());
            return `@font-face{font-family:${rule.style.getPropertyValue('font-family')};` +
                `font-weight:${rule.style.getPropertyValue('font-weight') || 'normal'};` +
                `font-style:${rule.style.getPropertyValue('font-style') || 'normal'};src:url(${data})}`;
        }));
    }
}
