// One bar per head, dragged with the mouse or a finger, moved with the arrow keys.
//
// data.values, data.ghost   numbers, one per bar; behind a bar stands its ghost
// data.most, data.step      a bar stops at -most and most, and goes in steps
// data.label                what a bar is called, before its number
// data.ticks                [{name, numbers, marked}]: marks beside the bars
// data.turn                 the number of the last telling that the server has heard of
//
// Triggers `values`, all numbers and their `turn`, when a bar is let go or a key is.
const DIGIT = 7, GAP = 6;  // pixels of a digit under a bar, and between two numbers
const KEYS = {
    ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10, PageDown: -10,
    End: Infinity, Home: -Infinity,
};

const written = value => value.toFixed(2).replace('-', '\u2212');

class Bars {
    constructor(root) {
        this.root = root;
        this.held = null;  // the bar that is dragged
        this.stepped = null;  // the bar that a key moves, until it is let go
        root.onpointerdown = event => this.grab(event);
        root.onpointermove = event => this.drag(event);
        root.onpointerup = root.onpointercancel = () => this.letGo();
        root.onkeydown = event => this.step(event);
        root.onkeyup = event => { if (event.key in KEYS) this.stay(); };
        root.addEventListener('focusout', () => { if (!this.held) this.stay(); });
        new ResizeObserver(() => { if (this.data) this.arrange(); }).observe(root);
    }

    show(data, report) {
        // What comes back from the server does not undo what was moved since, nor move a bar out of
        // somebody's hand.
        const late = isLate(this, data) && this.values.length === data.values.length;
        const values = [...(late ? this.values : data.values)];
        for (const bar of [this.held, this.stepped])
            if (bar) values[bar.number] = this.values[bar.number];
        Object.assign(this, { data, report, values, told: late ? this.told : [...data.values] });
        if (this.root.children.length !== values.length)
            this.root.replaceChildren(...values.map((_, number) => this.made(number)));
        values.forEach((_, number) => this.draw(number));
        this.arrange();
    }

    made(number) {
        const bar = element('div', {
            class: 'handles-bar', tabindex: 0, role: 'slider', 'aria-orientation': 'vertical',
        }, element('svg'), element('output'), element('small'));
        return Object.assign(bar, { number });
    }

    draw(number) {
        const bar = this.root.children[number], { data } = this, value = this.values[number];
        const [plot, under, name] = bar.children;
        const at = v => 50 - 50 * Math.max(-1, Math.min(1, v / data.most));
        const column = (kind, v, width) => element('rect', {
            class: `handles-${kind}`, x: `${50 - width / 2}%`, width: `${width}%`,
            y: `${Math.min(at(v), 50)}%`, height: `${Math.abs(at(v) - 50)}%` });
        const across = (kind, v, from, to, ...inside) => element('line', {
            class: `handles-${kind}`, x1: `${from}%`, x2: `${to}%`, y1: `${at(v)}%`,
            y2: `${at(v)}%` }, ...inside);
        const ghost = data.ghost[number];
        plot.replaceChildren(
            column('ghost', ghost, 76),
            column(value.toFixed(2) !== ghost.toFixed(2) ? 'changed' : 'value', value, 46),
            across('zero', 0, 0, 100),
            ...data.ticks.map(tick => across(
                tick.marked ? 'tick handles-marked' : 'tick', tick.numbers[number],
                tick.marked ? 60 : 74, 100,
                element('title', {}, `${tick.name}: ${written(tick.numbers[number])}`))),
            across('grip', value, 20, 80));
        under.textContent = written(value);
        name.textContent = number;
        for (const [key, now] of Object.entries({
            label: `${data.label} ${number}`, valuemin: -data.most, valuemax: data.most,
            valuenow: Number(value.toFixed(2)) })) bar.setAttribute(`aria-${key}`, now);
    }

    // As many rows as needed, of equal length.
    arrange() {
        const n = this.root.children.length;
        const least = DIGIT * written(-this.data.most).length + GAP;
        const rows = Math.ceil(n * least / Math.max(this.root.clientWidth, least));
        this.root.style.gridTemplateColumns = `repeat(${Math.ceil(n / rows)}, minmax(0, 1fr))`;
    }

    set(bar, value) {
        const { most, step } = this.data;
        const stopped = Math.max(-most, Math.min(most, Math.round(value / step) * step));
        this.values[bar.number] = Number(stopped.toFixed(6));
        this.draw(bar.number);
    }

    grab(event) {
        const bar = event.target.closest('.handles-bar');
        if (!bar || event.button !== 0) return;
        event.preventDefault();
        this.held = bar;
        bar.setPointerCapture(event.pointerId);
        bar.focus();
        this.drag(event);
    }

    drag(event) {
        if (!this.held) return;
        const frame = this.held.firstChild.getBoundingClientRect();
        this.set(this.held,
                 this.data.most * (1 - 2 * (event.clientY - frame.top) / frame.height));
    }

    letGo() {
        this.held = null;
        this.tell();
    }

    step(event) {
        const bar = event.target.closest('.handles-bar');
        if (!bar || !(event.key in KEYS)) return;
        event.preventDefault();
        this.stepped = bar;
        this.set(bar, this.values[bar.number] + KEYS[event.key] * this.data.step);
    }

    // Let a bar be where the keys have moved it.
    stay() {
        this.tell();
        this.stepped = null;
    }

    tell() {
        if (!this.values.some((value, number) => value !== this.told[number])) return;
        this.told = [...this.values];
        this.report(turned(this, { values: this.told }));
    }
}

export default function ({ data, parentElement, setTriggerValue }) {
    const root = rootIn(parentElement, 'handles');
    root.bars ??= new Bars(root);
    root.bars.show(data, values => setTriggerValue('values', values));
}
