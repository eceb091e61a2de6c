// The map: one or several planes with the same points in each, drawn by regl-scatterplot.
//
// The page says what is shown (see component.py); the map says what a person does: draws an
// outline, clicks a point, clears. Panning, zooming, hovering, hiding values of the legend and
// painting what is selected happen here, without the page.

const STILL = 4;         // pixels that the mouse may move during a click
const NEAR = 14;         // pixels from a point at which a click still means it
const ZOOM = [0.5, 200]; // how small and how large a picture gets, a turn of the wheel or many
const PATIENCE = 140;    // milliseconds over a point before its card is asked for
const TOOLS = [
    ['lasso', 'Lasso', 'Draw around points', 'M4 9c0-4 4-6 8-6s8 2 8 6-4 6-8 6c-3 0-5-1-6-2m0 0c-2 0-3 4 0 5s4-3 3-5'],
    ['box', 'Box', 'Draw a box around points', 'M4 5h16v14H4z'],
    ['pan', 'Pan', 'Move the picture; the wheel zooms with every tool', 'M12 3v18M3 12h18M9 6l3-3 3 3M9 18l3 3 3-3M6 9l-3 3 3 3M18 9l3 3-3 3'],
];

const fetched = new Map();
const MOST_FETCHED = 24;

// What lies at an address, which never changes; fetched once.
function fetchOnce(address, Type) {
    let found = fetched.get(address);
    if (!found) {
        found = fetch(address).then(answer => {
            if (!answer.ok) throw new Error(`${answer.status} ${address}`);
            return answer.arrayBuffer();
        }).then(buffer => new Type(buffer));
        found.catch(() => fetched.delete(address));
        fetched.set(address, found);
        if (fetched.size > MOST_FETCHED) fetched.delete(fetched.keys().next().value);
    }
    return found;
}

// A linear scale with the methods that regl-scatterplot calls: it keeps the domain up to date.
function scale(from, to) {
    let domain = [from, to], range = [0, 1];
    const at = value =>
        range[0] + (value - domain[0]) / (domain[1] - domain[0]) * (range[1] - range[0]);
    at.domain = wanted => wanted ? (domain = [...wanted], at) : domain;
    at.range = wanted => wanted ? (range = [...wanted], at) : range;
    return at;
}

// Points of a plane, [x..., y...], as columns from -1 to 1 on equal scales.
function columns(points, n, { centre, half }) {
    const x = new Float32Array(n), y = new Float32Array(n);
    for (let i = 0; i < n; i++) {
        x[i] = (points[i] - centre[0]) / half;
        y[i] = (points[n + i] - centre[1]) / half;
    }
    return { x, y };
}

class Panel {
    constructor(map, library, renderer) {
        this.map = map;
        this.canvas = element('canvas', { role: 'img' });
        this.marks = element('svg', { 'aria-hidden': 'true' });
        this.title = element('div', { class: 'lc-title' });
        this.names = element('div', { class: 'lc-names', 'aria-hidden': 'true' });
        this.lost = button({
            class: 'lc-lost', hidden: '', onclick: () => this.plot.reset(),
        }, 'No point is in view. Show the whole picture');
        this.field = element('div', { class: 'lc-field' },
            this.canvas, this.names, this.marks, this.lost);
        this.root = element('div', { class: 'lc-panel' }, this.title, this.field);
        this.library = library;
        this.renderer = renderer;
        this.hovered = -1;
        // In this order, so that the library does not take a click for a selection.
        this.field.addEventListener('mousedown', event => {
            this.pressed = {
                x: event.clientX, y: event.clientY, data: map.data,
                point: this.isAt(event) ? this.hovered : -1,
            };
        }, true);
        this.field.addEventListener('click', event => {
            if (event.target === this.lost) return;
            event.stopPropagation();
            const moved = this.pressed && Math.hypot(
                event.clientX - this.pressed.x, event.clientY - this.pressed.y);
            if (!(moved < STILL)) return;
            // The point that was pressed, though the picture may have changed since then.
            const { point, data } = this.pressed;
            if (point >= 0 && data.n === map.data.n) {
                map.say('instance', point);
            } else if (this.isAt(event)) map.say('instance', this.hovered);
        }, true);
        this.field.tabIndex = 0;
        this.field.setAttribute('aria-label', 'Points: the arrow keys go from one to the next, Enter opens it');
        this.field.addEventListener('keydown', event => {
            const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
            if (way) this.walk(way);
            else if (event.key === 'Enter' && map.ringed >= 0) map.say('instance', map.ringed);
            else return;
            event.preventDefault();
            event.stopPropagation();
        });
        this.field.addEventListener('blur', () => this.hover(-1));
        this.field.addEventListener('dblclick', event => {
            event.stopPropagation();
            map.clear();
        }, true);
    }

    start(options) {
        const { width, height } = this.field.getBoundingClientRect();
        // All points are in a picture that is narrower than high, too.
        const distance = Math.max(1, height / Math.max(width, 1));
        this.plot = this.library.createScatterplot({
            canvas: this.canvas, renderer: this.renderer,
            cameraDistance: distance, cameraTarget: [0, 0],
            pointOutlineWidth: 0, lassoOnLongPress: false, lassoInitiator: false,
            deselectOnDblClick: false, deselectOnEscape: false, showReticle: false,
            actionKeyMap: { lasso: 'shift', merge: 'cmd', remove: 'alt' },
            lassoLineWidth: 1.5, lassoMinDelay: 4, spatialIndexUseWorker: false, ...options,
        });
        const camera = this.plot.get('camera');
        this.whole = distance;
        camera.config({ isRotate: false }); // nothing that lies over the points would turn
        this.holdStill();
        camera.setScaleBounds(ZOOM.map(zoom => zoom / distance));
        this.plot.subscribe('pointover', point => this.hover(point));
        this.plot.subscribe('pointout', () => this.hover(-1));
        this.plot.subscribe('lassoEnd', ({ coordinates }) => this.outlined(coordinates));
        this.plot.subscribe('drawing', () => this.mark(), Infinity);
    }

    // Pan with the tool of that name alone: the camera takes a mouse that has come from elsewhere and
    // is pressed between two frames for one that is dragged.
    holdStill() {
        this.plot?.get('camera').config({ isPan: this.map.tool === 'pan' });
    }

    // Draw points; `whole`: and look at all of them, not where one has looked before.
    async draw(plane, points, values, whole) {
        await this.rescale(plane);
        if (whole) this.plot.get('camera').lookAt([0, 0], this.whole, 0);
        this.plane = plane;
        this.points = points;
        await this.plot.draw(
            { ...columns(points, values.length, plane), z: values },
            { zDataType: 'categorical' });
        this.drawn = true;
        this.mark();
    }

    // Another plane has other coordinates. The library asks a new scale for its domain, and then
    // keeps it at what is in view.
    rescale({ centre, half }) {
        this.xScale = scale(centre[0] - half, centre[0] + half);
        this.yScale = scale(centre[1] - half, centre[1] + half);
        return this.plot.set({ xScale: this.xScale, yScale: this.yScale });
    }

    // Whether the point that the library last saw under the mouse still is: it tells so later.
    isAt({ clientX, clientY }) {
        if (this.hovered < 0) return false;
        const [x, y] = this.position(this.hovered), field = this.field.getBoundingClientRect();
        return Math.hypot(clientX - field.left - x, clientY - field.top - y) < NEAR;
    }

    // The position of a point of the plane on the screen, in pixels from the panel's corner.
    at(x, y) {
        return [this.xScale(x), this.yScale(y)];
    }

    position(point) {
        return this.at(this.points[point], this.points[this.points.length / 2 + point]);
    }

    // Whether a point that the legend shows lies in the field.
    isAnyInView() {
        const { values, legend: { hidden } } = this.map, n = this.points.length / 2;
        const [left, right] = this.xScale.domain(), [bottom, top] = this.yScale.domain();
        for (let i = 0; i < n; i++) {
            const x = this.points[i], y = this.points[n + i];
            if (x >= left && x <= right && y >= bottom && y <= top
                && !(hidden.size && hidden.has(values[i]))) return true;
        }
        return false;
    }

    hover(point) {
        this.hovered = point;
        this.map.hover(this, point);
    }

    // Go to the nearest point that lies more in a direction than aside of it; at first, to the one
    // that is open or stands in the middle.
    walk([right, down]) {
        const { values, ringed, data, legend: { hidden } } = this.map, n = this.points.length / 2;
        const { width, height } = this.field.getBoundingClientRect();
        const from = ringed >= 0 ? ringed : data.instance ?? -1;
        const [x, y] = from >= 0 ? this.position(from) : [width / 2, height / 2];
        let best = from, least = Infinity;
        for (let i = 0; i < n; i++) {
            if (i === from || hidden.has(values[i])) continue;
            const [px, py] = this.position(i), dx = px - x, dy = py - y;
            if (px < 0 || py < 0 || px > width || py > height) continue;
            const along = dx * right + dy * down, aside = Math.abs(dx * down) + Math.abs(dy * right);
            if (from >= 0 && !(along > 0.5 && along >= aside)) continue;
            const far = Math.hypot(dx, dy);
            if (far < least) [best, least] = [i, far];
        }
        if (best >= 0) this.hover(best);
    }

    outlined(coordinates) {
        const { centre, half } = this.plane;
        // In NDC of the data, flat pairs or pairs of numbers by version of the library.
        const corners = Array.isArray(coordinates[0]) ? coordinates
            : Array.from({ length: coordinates.length / 2 }, (_, i) => coordinates.slice(2 * i, 2 * i + 2));
        const points = corners.map(([x, y]) => [centre[0] + x * half, centre[1] + y * half]);
        if (points.length < 3) return;
        this.map.outlined(this, this.plot.get('selectedPoints'),
            { plane: this.plane.name, points, ...this.map.switchedOff() });
    }

    select(rows) {
        if (this.plot) this.plot.select(rows, { preventEvent: true });
    }

    // Draw what lies over the points: outlines, the rings, the names of clusters.
    mark() {
        if (!this.drawn) return;
        const { data } = this.map, made = [];
        for (const { plane, points } of data.outlines) {
            if (plane === this.plane.name) made.push(element('path', {
                class: 'lc-outline', d: `M${points.map(([x, y]) => this.at(x, y)).join('L')}Z`,
            }));
        }
        for (const [point, name] of [[data.instance, 'lc-ring'], [this.map.ringed, 'lc-hover']]) {
            if (point == null || point < 0 || point >= data.n) continue;
            const [cx, cy] = this.position(point);
            made.push(element('circle', { class: name, cx, cy, r: name === 'lc-ring' ? 8 : 6 }));
        }
        this.marks.replaceChildren(...made);
        this.lost.hidden = this.isAnyInView();
        this.names.replaceChildren(...this.map.named ? this.nameTags() : []);
    }

    // The names of clusters that have room: the densest first, none over another.
    nameTags() {
        const { data, legend } = this.map, taken = [], made = [];
        for (const { value, at } of this.plane.clusters) {
            if (legend.hidden.has(value)) continue;
            const name = data.colour.names[value], [x, y] = this.at(...at);
            const half = Math.min(3.8 * name.length, 90);
            if (taken.some(other => Math.abs(other.x - x) < other.half + half
                && Math.abs(other.y - y) < 15)) continue;
            taken.push({ x, y, half });
            made.push(element('span', { style: `left:${x}px;top:${y}px` }, name));
        }
        return made;
    }

    save() {
        this.canvas.toBlob(blob => {
            const address = URL.createObjectURL(blob);
            element('a', { href: address, download: 'map.png' }).click();
            URL.revokeObjectURL(address);
        });
    }

    end() {
        this.plot?.destroy();
        this.root.remove();
    }
}

class CodeMap {
    constructor(parent) {
        this.tool = 'lasso';
        this.named = true;
        this.ringed = -1;
        this.legend = { hidden: new Set() };
        this.panels = [];
        this.selected = [];
        this.waiting = Promise.resolve();
        this.tools = element('div', { class: 'lc-tools', role: 'toolbar', 'aria-label': 'Tools of the map' });
        this.grid = element('div', { class: 'lc-grid' });
        this.key = element('div', { class: 'lc-legend', role: 'group' });
        this.card = element('div', { class: 'lc-card', role: 'tooltip', hidden: '' });
        this.trouble = element('div', { class: 'lc-trouble', role: 'alert', hidden: '' });
        this.root = element('div', { class: 'lc-map' },
            this.tools, this.trouble, this.grid, this.key, this.card);
        this.root.codeMap = this;
        parent.append(this.root);
        this.fillTools();
        this.follow = new ResizeObserver(() => {
            this.fit();
            this.panels.forEach(panel => panel.mark());
        });
        this.follow.observe(this.grid);
    }

    fillTools() {
        const icon = d => element('svg', { viewBox: '0 0 24 24' }, element('path', { d }));
        this.buttons = TOOLS.map(([name, text, help, path]) => button({
            title: help, 'data-tool': name, onclick: () => this.use(name),
        }, icon(path), text));
        this.nameButton = button({
            title: 'Write the names of values where most of their points are',
            onclick: () => { this.named = !this.named; this.press(); this.panels.forEach(p => p.mark()); },
        }, 'Names');
        this.tools.append(...this.buttons, this.nameButton, button({
            title: 'Show the whole picture again',
            onclick: () => this.panels.forEach(panel => panel.plot?.reset()),
        }, 'Whole picture'), button({
            title: 'Save the points as a picture', onclick: () => this.panels.forEach(panel => panel.save()),
        }, 'PNG'));
        this.press();
    }

    press() {
        for (const one of this.buttons)
            one.setAttribute('aria-pressed', one.dataset.tool === this.tool);
        this.nameButton.setAttribute('aria-pressed', this.named);
    }

    use(tool) {
        this.tool = tool;
        this.press();
        this.panels.forEach(panel => {
            panel.plot?.set(this.mouse());
            panel.holdStill();
        });
    }

    mouse() {
        return {
            mouseMode: this.tool === 'pan' ? 'panZoom' : 'lasso',
            lassoType: this.tool === 'box' ? 'rectangle' : 'freeform',
        };
    }

    // Show what the page says; one thing after the other, the last one if several wait.
    update(data) {
        this.latest = data;
        this.waiting = this.waiting.then(async () => {
            if (this.latest !== data || this.gone) return;
            try {
                await this.show(data);
                this.trouble.hidden = true;
            } catch (error) {
                // What the server has dropped, it makes again when the page runs again.
                if (!this.again && /^404/.test(error.message)) {
                    this.again = true;
                    this.say('missing', Date.now());
                } else {
                    this.trouble.textContent = `The map cannot be drawn: ${error.message}`;
                    this.trouble.hidden = false;
                    console.error(error);
                }
            }
        });
    }

    async show(data) {
        const [library, values, selected, ...planes] = await Promise.all([
            import(new URL(data.library, location.origin)),
            fetchOnce(data.colour.values, Uint16Array),
            data.selected ? fetchOnce(data.selected, Uint32Array) : [],
            ...data.planes.map(plane => fetchOnce(plane.points, Float32Array)),
        ]);
        this.again = false;
        const before = this.data;
        this.data = data;
        this.root.classList.toggle('lc-dark', data.dark);
        this.root.style.setProperty('--lc-ink', data.ink);
        this.root.style.setProperty('--lc-accent', data.accent);
        this.grid.style.gridTemplateColumns = `repeat(${data.across}, minmax(0, 1fr))`;
        const look = this.look(data, values);
        const renewed = this.panels.length !== data.planes.length || before?.height !== data.height;
        if (renewed) this.renew(data, library);
        const moved = data.planes.map(
            (plane, i) => renewed || plane.points !== before?.planes[i].points);
        const { label, names } = data.colour;
        if (before?.colour.label !== label || before.colour.names.join() !== names.join())
            this.legend.hidden.clear();
        this.values = values;
        this.fillLegend(data.colour);
        const changed = renewed || before?.n !== data.n
            || before?.colour.values !== data.colour.values
            || before?.dark !== data.dark
            || data.planes.some((plane, i) => moved[i] || plane.half !== before?.planes[i].half);
        for (const [i, panel] of this.panels.entries()) {
            const plane = data.planes[i];
            panel.title.textContent = data.planes.length > 1 ? plane.title : '';
            panel.canvas.setAttribute('aria-label', data.alt);
            if (!panel.plot) panel.start({ ...look, ...this.mouse() });
            else if (changed) panel.plot.set(look);
            // With other points of the same instances it is another picture, which is seen whole.
            if (changed) await panel.draw(
                plane, planes[i], values, moved[i] && before?.n === data.n);
        }
        if (changed) this.sift();
        this.choose(Array.from(selected), changed);
        this.panels.forEach(panel => panel.mark());
        this.root.dataset.drawn = data.planes.map(plane => plane.points).join();
    }

    look({ n, colour, dark, planes, size }, values) {
        return {
            backgroundColor: dark ? '#12171D' : '#FFFFFF',
            lassoColor: this.data.accent, pointColor: colour.colors, colorBy: 'valueA',
            pointColorActive: colour.colors, pointColorHover: colour.colors,
            opacity: 0.85, opacityBy: n > 20000 ? 'density' : null,
            opacityByDensityFill: 0.35,
            // Faint, and still there.
            opacityInactiveMax: 1, opacityInactiveScale: dark ? 0.3 : 0.22,
            pointSize: size, pointSizeSelected: 0,
        };
    }

    renew(data, library) {
        this.panels.forEach(panel => panel.end());
        // With a canvas of its own, which `fit` gives a size; the library's would have the window's.
        this.renderer ??= library.createRenderer({ canvas: document.createElement('canvas') });
        this.panels = data.planes.map(() => new Panel(this, library, this.renderer));
        this.grid.replaceChildren(...this.panels.map(panel => panel.root));
        for (const panel of this.panels) panel.field.style.height = `${data.height}px`;
        this.fit();
    }

    // Give the canvas that all panels are drawn on, one after the other, the size of the largest:
    // without a graphics card every pixel takes time.
    fit() {
        if (!this.renderer) return;
        const boxes = this.panels.map(panel => panel.field.getBoundingClientRect());
        const pixels = size => Math.floor(Math.max(1, ...size) * devicePixelRatio);
        const width = pixels(boxes.map(box => box.width)), height = pixels(boxes.map(box => box.height));
        const { canvas } = this.renderer;
        if (canvas.width === width && canvas.height === height) return;
        // Half a pixel more, which is cut off, as the ratio need not be a whole number.
        this.renderer.resize((width + 0.5) / devicePixelRatio, (height + 0.5) / devicePixelRatio);
        this.panels.forEach(panel => panel.plot?.redraw());
    }

    fillLegend({ title, names, counts, colors, continuous, low, high, middle }) {
        this.key.setAttribute('aria-label', `Colours: ${title}`);
        if (continuous) {
            this.key.replaceChildren(element('b', {}, title), element('span', {}, low),
                element('span', {
                    class: 'lc-ramp', style: `background:linear-gradient(90deg,${colors.slice(0, -1)})`,
                }), element('span', {}, middle ? `median ${middle} … ${high}` : high));
            return;
        }
        this.key.replaceChildren(element('b', {}, title), ...names.map((name, value) =>
            button({
                'data-value': value, title: `${counts[value].toLocaleString('en')} points; click to hide or show them`,
                'aria-pressed': !this.legend.hidden.has(value),
                onclick: () => this.toggle(value),
            }, element('i', { style: `background:${colors[value]}` }), name)));
    }

    toggle(value) {
        const { hidden } = this.legend;
        if (!hidden.delete(value)) hidden.add(value);
        if (hidden.size === this.data.colour.names.length) hidden.clear();
        this.fillLegend(this.data.colour);
        this.sift();
        this.panels.forEach(panel => panel.mark());
    }

    // What an outline leaves out: nobody means what he does not see.
    switchedOff() {
        const { label, names } = this.data.colour;
        return { label, hidden: [...this.legend.hidden].map(value => names[value]) };
    }

    // Hide the points whose value the legend has switched off.
    sift() {
        const { hidden } = this.legend;
        const shown = [];
        if (hidden.size) this.values.forEach((value, i) => { if (!hidden.has(value)) shown.push(i); });
        for (const { plot } of this.panels) {
            if (hidden.size) plot.filter(shown, { preventEvent: true });
            else plot.unfilter({ preventEvent: true });
        }
        this.choose(this.selected, true);
    }

    choose(rows, anew = false) {
        const same = !anew && rows.length === this.selected.length
            && rows.every((row, i) => row === this.selected[i]);
        this.selected = rows;
        // The library takes rows that are filtered out from the list that it is given.
        if (!same) this.panels.forEach(panel => panel.select([...rows]));
    }

    outlined(panel, rows, outline) {
        const sorted = Array.from(rows).sort((a, b) => a - b);
        this.selected = sorted;
        for (const other of this.panels) if (other !== panel) other.select([...sorted]);
        this.data = { ...this.data, outlines: [outline] };
        this.panels.forEach(each => each.mark());
        this.say('outline', outline);
    }

    clear() {
        if (!this.selected.length && !this.data.outlines.length) return;
        this.choose([]);
        this.data = { ...this.data, outlines: [] };
        this.panels.forEach(panel => panel.mark());
        this.say('cleared', Date.now());
    }

    hover(panel, point) {
        this.ringed = point;
        this.panels.forEach(each => each.mark());
        clearTimeout(this.soon);
        if (point < 0) {
            this.card.hidden = true;
            return;
        }
        this.soon = setTimeout(() => this.showCard(panel, point), PATIENCE);
    }

    async showCard(panel, point) {
        const { colour } = this.data, { cards } = panel.plane, value = this.values[point];
        const head = element('div', { class: 'lc-head' }, `instance ${point}`, element('span', {},
            colour.continuous ? colour.title : colour.names[value]));
        if (!colour.continuous) head.lastChild.prepend(
            element('i', { style: `background:${colour.colors[value]}` }));
        this.card.replaceChildren(head);
        this.place(panel, point);
        if (!cards) return;
        const inside = element('div', { class: 'lc-problem' });
        this.card.append(inside);
        const answer = await fetch(`${cards}/${point}`).catch(() => null);
        if (this.ringed !== point || !answer?.ok) return;
        // The server has escaped what comes from files.
        inside.innerHTML = await answer.text();
        this.place(panel, point);
    }

    place(panel, point) {
        this.card.hidden = false;
        const field = panel.field.getBoundingClientRect(), own = this.card.getBoundingClientRect();
        const [x, y] = panel.position(point), gap = 14;
        const left = field.left + x + gap + own.width < innerWidth
            ? field.left + x + gap : field.left + x - gap - own.width;
        const top = Math.min(Math.max(field.top + y - own.height / 2, 4),
            innerHeight - own.height - 4);
        this.card.style.transform = `translate(${Math.max(left, 4)}px,${top}px)`;
    }

    end() {
        this.gone = true;
        clearTimeout(this.soon);
        this.follow.disconnect();
        this.panels.forEach(panel => panel.end());
        this.renderer?.destroy();
        this.root.remove();
    }
}

const maps = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
    let map = maps.get(parentElement);
    if (!map) maps.set(parentElement, map = new CodeMap(parentElement));
    map.say = setTriggerValue;
    map.update(data);
    return () => { map.end(); maps.delete(parentElement); };
}
