// A source, whose places are handles: dragged to the problem beside it, clicked, or entered, a place
// is put in there.
//
// data.html, data.label   the source; tokens have their position as data-token
// data.places             [{name, about, colour, source, problem}]: positions in source and problem
// data.current            the place that is put in now, or null
// data.problem            key of the component that shows the problem
//
// Triggers `put`, the name of a place.
const FAR = 5;  // pixels from which on a press is a drag

class Source {
    constructor(root) {
        this.root = root;
        this.held = null;  // what is dragged: the place, where from, and what follows the pointer
        this.drawing = element('div', { class: 'tokens-problem', role: 'group' });
        this.handles = element('div', { class: 'places-handles', role: 'group',
                                        'aria-label': 'Places of the source' });
        root.append(this.drawing, this.handles);
        root.onpointerdown = event => this.grab(event);
        root.onpointermove = event => this.drag(event);
        root.onpointerup = event => this.letGo(event);
        root.onpointercancel = () => this.release();
        this.escape = event => { if (event.key === 'Escape') this.release(); };
    }

    show(data, report) {
        Object.assign(this, { data, report });
        this.drawing.setAttribute('aria-label', data.label);
        if (this.shown !== data.html) {
            this.shown = data.html;
            this.drawing.innerHTML = data.html;  // by the library, which escapes what it shows
            for (const place of data.places) this.cells(this.drawing, place.source).forEach(cell => {
                cell.dataset.place = place.name;
                cell.classList.add('places-cell');
                cell.style.setProperty('--of', place.colour);
            });
        }
        refill(this.handles, ...(data.places.length ? ['Drag into the problem, or click:'] : []),
            ...data.places.map(({ name, about, colour }) => button({
                'data-place': name, title: about, style: `--of: ${colour}`,
                'aria-pressed': name === data.current, onclick: () => this.report(name) }, name)));
    }

    // What shows some tokens: of a table, its cells.
    cells(part, positions) {
        return positions.flatMap(position => [...part.querySelectorAll(`[data-token="${position}"]`)])
            .map(token => token.closest('td') ?? token);
    }

    get problem() { return document.querySelector(`.st-key-${this.data.problem} .tokens-problem`); }

    grab(event) {
        const part = event.target.closest('[data-place]');
        // A finger on a drawing scrolls the page.
        if (!part || event.button !== 0 || (part.localName !== 'button' && event.pointerType === 'touch')) return;
        const place = this.data.places.find(({ name }) => name === part.dataset.place);
        this.held = { place, x: event.clientX, y: event.clientY, ghost: null };
        window.addEventListener('keydown', this.escape);
        if (part.localName !== 'button') event.preventDefault();
    }

    drag(event) {
        const { held } = this;
        if (!held) return;
        if (!held.ghost) {
            if (Math.hypot(event.clientX - held.x, event.clientY - held.y) < FAR) return;
            held.ghost = this.root.appendChild(element('div', {
                class: 'places-ghost', style: `--of: ${held.place.colour}` }, held.place.name));
            this.root.setPointerCapture(event.pointerId);
        }
        held.ghost.style.transform = `translate(${event.clientX + 8}px, ${event.clientY + 8}px)`;
        this.mark(this.isOver(event) ? held.place : null);
    }

    isOver(event) {
        return this.problem?.contains(document.elementFromPoint(event.clientX, event.clientY));
    }

    // Show where in the problem a place would be put.
    mark(place) {
        for (const cell of document.querySelectorAll('.places-over')) cell.classList.remove('places-over');
        if (place && this.problem) for (const cell of this.cells(this.problem, place.problem)) {
            cell.classList.add('places-over');
            cell.style.setProperty('--of', place.colour);
        }
    }

    letGo(event) {
        const { held } = this;
        if (!held) return;
        const put = held.ghost ? this.isOver(event) : event.target.localName !== 'button';
        this.release();
        if (put) this.report(held.place.name);
    }

    release() {
        this.held?.ghost?.remove();
        this.held = null;
        window.removeEventListener('keydown', this.escape);
        this.mark(null);
    }
}

export default function ({ data, parentElement, setTriggerValue }) {
    const root = rootIn(parentElement, 'places');
    root.source ??= new Source(root);
    root.source.show(data, name => setTriggerValue('put', name));
}
