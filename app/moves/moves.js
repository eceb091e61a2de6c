// One problem, a source beside it, and what is put from one into the other; whose answer comes.
//
// data.tasks, data.kinds, data.states, data.criteria, data.problems   as `view.py` makes them
// data.state     {task, kind, put, drop, problem}: what is shown; `drop` is a place or 'nothing'
// data.alone     there is no server: problems go round, and the state is in the page's address
// data.turn      the number of the last choice that the server has heard of
//
// Triggers `state` with what a visitor has chosen, and its number as `turn`.
const FAR = 5;  // pixels from which on a press is a drag
const TITLES = { operation: 'operation', operands: 'operands', answer: 'answer', base: 'own', else: 'none' };
const ORDER = ['operation', 'operands', 'answer', 'base', 'else'];

const share = value => value.toFixed(2);

class Moves {
    constructor(root) {
        this.root = root;
        this.held = null;  // what is dragged: the move, where from, and what follows the pointer
        this.refuting = false;
        root.shareTables = () => this.tables();
        root.addEventListener('pointerdown', event => this.grab(event));
        root.addEventListener('keydown', event => this.key(event));
        window.addEventListener('pointermove', event => this.drag(event));
        window.addEventListener('pointerup', event => this.letGo(event));
        window.addEventListener('pointercancel', () => this.release());
    }

    show(data, report) {
        // What comes back from the server does not undo what has been chosen since.
        const late = isLate(this, data);
        Object.assign(this, { data, report });
        if (!late) this.state = { ...data.state };
        // What is drawn already stays, with what somebody is about to press.
        if (this.drawn !== this.needed()) this.draw();
    }

    needed() { return JSON.stringify([this.state, this.problem?.computed, this.problem?.number]); }

    get task() { return this.data.tasks.find(task => task.name === this.state.task); }
    get moves() {
        return this.task.moves.filter(
            move => !this.task.sites.length || move.site === this.state.put);
    }
    get move() { return this.moves.find(move => move.place === this.state.drop) ?? null; }
    get problem() {
        return this.data.problems[this.state.task].find(
            problem => problem.number === this.state.problem) ?? null;
    }
    get stored() { return this.data.states[`${this.state.task}/${this.state.kind}/${this.move.name}`]; }

    // Show something else, and tell the server.
    set(change) {
        this.state = { ...this.state, ...change };
        if (!this.move && this.state.drop !== 'nothing') this.state.drop = this.moves[0].place;
        this.draw();
        this.report(turned(this, this.state));
    }

    put(place) { this.set({ drop: this.state.drop === place ? 'nothing' : place }); }

    another() {
        const { problems } = this.data, next = this.state.problem + 1;
        this.set({ problem: this.data.alone ? next % problems[this.state.task].length : next });
    }

    draw() {
        const { problem } = this, { kind } = this.state;
        this.root.dataset.state = JSON.stringify(this.state);
        refill(this.root, this.finding(), this.switches(), problem ? element('div', { class: 'moves-board' },
            this.side('base', problem), this.side('source', problem), this.result(problem, kind), this.about())
            : element('p', { class: 'moves-waiting', role: 'status' },
                      `Problem ${this.state.problem} is not stored: drawing it, and asking the three models …`));
        if (problem) this.mark(problem);
        this.drawn = this.needed();
    }

    finding() {
        const { move } = this;
        if (!move) return element('section', { class: 'moves-finding' },
            element('h5', {}, 'Take something of the source, and put it into the problem: whose answer comes?'),
            element('p', {}, 'Drag it, click it, or press Enter on it.'));
        const { question, verdict, said, told } = this.stored;
        return element('section', { class: 'moves-finding' },
            element('h5', {}, question, ' ', element('span', { class: `moves-verdict moves-${verdict}` }, said)),
            element('p', {}, told, ' ', this.refute()));
    }

    refute() {
        const { refute, file } = this.stored, quoted = this.data.criteria[file];
        const details = element('details', {
            class: 'moves-refute', ontoggle: event => { this.refuting = event.target.open; } },
            element('summary', {}, 'What would refute this?'),
            element('div', {}, ...refute.map(text => element('p', {}, text)),
                    ...(quoted ? [element('p', {}, element('b', {}, 'As it was committed'), `, in ${file}: “${quoted}”`)] : [])));
        details.open = this.refuting;
        return details;
    }

    switches() {
        const { sites } = this.task;
        return element('div', { class: 'moves-switches' },
            this.choice('Task', 'task', this.data.tasks), this.choice('Attention', 'kind', this.data.kinds),
            ...(sites.length ? [this.choice('What is put', 'put', sites)] : []));
    }

    choice(label, key, options) {
        const now = this.state[key];
        return element('div', { class: 'moves-choice', role: 'radiogroup', 'aria-label': label },
            ...options.map(({ name, title }) => button({
                role: 'radio', 'aria-checked': String(name === now), tabindex: name === now ? 0 : -1,
                'data-choice': key, 'data-name': name, onclick: () => this.set({ [key]: name }),
                onkeydown: event => this.step(event, key, options) }, title)));
    }

    // Arrow keys go through a row of buttons, and choose.
    step(event, key, options) {
        const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        const at = options.findIndex(option => option.name === this.state[key]);
        const { name } = options[(at + by + options.length) % options.length];
        this.set({ [key]: name });
        this.root.querySelector(`[data-choice="${key}"][data-name="${CSS.escape(name)}"]`).focus();
    }

    side(name, problem) {
        const isBase = name === 'base', said = problem.kinds[this.state.kind];
        const right = problem.four[isBase ? 0 : 3], given = said[name];
        const drawing = element('div', { class: 'moves-drawing' });
        drawing.innerHTML = problem[name].html;  // drawn by the task, which escapes what it shows
        return element('section', { class: `moves-side moves-${name}`, 'data-side': name, 'data-problem': problem.number,
                                    'aria-label': isBase ? 'The problem' : 'The source' },
            element('header', {}, element('b', {}, isBase ? `Problem ${problem.number}` : 'Source'),
                    element('span', {}, problem[name].asks)),
            drawing,
            element('div', { class: 'moves-places' }, ...this.moves.map(
                move => isBase ? this.slot(move) : this.handle(move))),
            element('p', { class: 'moves-given' }, 'answers ', element('b', {}, given),
                    given === right || this.isNear(given, right) ? '' : `; right is ${right}`,
                    isBase ? element('span', {}, ' by itself') : ''));
    }

    about() {
        const { about } = this.data, site = this.move?.site ?? this.state.put;
        return element('p', { class: 'moves-about' }, about[site] ?? Object.values(about).join(' '),
            ' Everything else of the problem stays as it is.');
    }

    // Numbers count as right where the task takes them to be.
    isNear(given, right) { return this.state.task === 'logic' && Math.abs(given - right) < 0.05; }

    handle(move) {
        const isIn = this.state.drop === move.place;
        return button({
            class: `moves-handle moves-of-${move.brings}`, 'data-handle': move.place, 'aria-pressed': String(isIn),
            title: `${move.about}; ${move.layers}`,
            'aria-label': `${isIn ? 'Take back' : 'Put in'} the source's ${this.called(move)}`,
            onclick: () => { if (!this.dragged) this.put(move.place); } },
            element('span', { class: 'moves-grip', 'aria-hidden': 'true' }, '⠿'), move.place);
    }

    called(move) {
        return this.state.task === 'text' ? move.about : `${move.site} at the ${move.place}`;
    }

    slot(move) {
        const isIn = this.state.drop === move.place;
        return button({
            class: `moves-slot moves-of-${move.brings}${isIn ? ' moves-full' : ''}`, 'data-slot': move.place,
            title: `${move.about}; ${move.layers}`, 'aria-label': isIn
                ? `The source's ${this.called(move)} are in; take them back`
                : `Put the source's ${this.called(move)} in here`,
            onclick: () => this.put(move.place) },
            isIn ? `source's ${move.site}` : move.place);
    }

    result(problem, kind) {
        const said = problem.kinds[kind], { move } = this;
        const came = move ? said.moves[move.name] : { class: 'base', answer: said.base, said: 'It gives its own answer' };
        const model = `${this.state.task}-${kind}`;
        return element('section', { class: 'moves-result', 'aria-label': 'Whose answer comes' },
            element('p', { class: `moves-outcome moves-of-${came.class}`, role: 'status' },
                    `${came.said}: `, element('b', {}, came.answer)),
            ...(said.known ? [] : [element('p', { class: 'moves-unknown' },
                `${model} does not answer this problem and its sources rightly, so that it does not count.`)]),
            element('ul', { class: 'moves-four' }, ...ORDER.map(name => this.answer(name, problem, came))),
            ...(move && this.stored.rows.length ? [this.bars(move)] : []),
            element('p', { class: 'moves-measured' }, this.origin(problem, model)),
            button({ class: 'moves-another', 'data-another': '', onclick: () => this.another() }, 'Another problem'));
    }

    answer(name, problem, came) {
        const number = ['base', 'operation', 'operands', 'answer'].indexOf(name);
        return element('li', { class: `moves-of-${name}${name === came.class ? ' moves-came' : ''}` },
            element('i', { 'aria-hidden': 'true' }), this.task.came[name], ' ',
            ...(number < 0 ? [] : [element('b', {}, problem.four[number])]));
    }

    origin(problem, model) {
        const answers = problem.computed ? `Answers: computed now on ${model}.` : `Answers: stored, of ${model}.`;
        return this.move ? `${answers} ${this.stored.measured} ${this.stored.here}` : answers;
    }

    bars(move) {
        const order = [move.brings, ...ORDER.filter(name => name !== move.brings)];
        const { rows, mark } = this.stored;
        return element('div', { class: 'moves-bars', role: 'list', 'aria-label': 'Over many problems' },
            ...rows.map((row, at) => element('div', {
                class: 'moves-row', role: 'listitem', 'aria-label': `${row.label}: ` + order.map(
                    name => `${this.task.came[name]} ${share(row.shares[name])}`).join(', ') },
                element('span', {}, row.label),
                element('div', { class: 'moves-bar' },
                    ...order.map(name => element('div', {
                        class: `moves-of-${name}`, style: `width:${100 * row.shares[name]}%`,
                        title: `${this.task.came[name]}: ${share(row.shares[name])}` })),
                    element('span', { class: 'moves-range', style: `left:${100 * row.low}%;width:${100 * (row.high - row.low)}%` }),
                    ...(at === 0 && mark !== null ? [element('span', {
                        class: 'moves-here', style: `left:${100 * mark}%` })] : [])),
                element('output', {}, share(row.share)))));
    }

    // The numbers of the bars, for a page that is saved.
    tables() {
        if (!this.move || !this.stored.rows.length) return [];
        return [{ name: 'whose answers came', head: ['what is put', ...ORDER.map(name => this.task.came[name]), 'low', 'high'],
            rows: this.stored.rows.map(({ label, shares, low, high }) => [label, ...ORDER.map(name => shares[name]), low, high]) }];
    }

    // Tokens of the places have their colours, and can be dragged as the handles can.
    mark(problem) {
        const own = new Set(problem.own);
        for (const side of this.root.querySelectorAll('.moves-side'))
            for (const token of side.querySelectorAll('[data-token]')) {
                const number = Number(token.dataset.token);
                if (own.size && !own.has(number)) token.classList.add('moves-other');
                const move = this.moves.find(one => problem.places[one.place].includes(number));
                if (!move) continue;
                const cell = token.closest('td') ?? token;
                cell.dataset.place = move.place;
                cell.classList.add('moves-cell', `moves-of-${move.brings}`);
                cell.classList.toggle('moves-full', this.state.drop === move.place);
            }
    }

    grab(event) {
        if (event.button !== 0) return;
        const handle = event.target.closest('[data-handle]');
        // A finger on a drawing scrolls the page.
        const cell = event.pointerType === 'touch' ? null
            : event.target.closest('[data-side=source] [data-place]');
        const place = handle?.dataset.handle ?? cell?.dataset.place;
        this.dragged = false;
        if (place === undefined) return;
        this.held = { place, x: event.clientX, y: event.clientY, ghost: null };
        if (!handle) event.preventDefault();
    }

    drag(event) {
        const { held } = this;
        if (!held) return;
        const move = this.moves.find(one => one.place === held.place);
        if (!held.ghost) {
            if (Math.hypot(event.clientX - held.x, event.clientY - held.y) < FAR) return;
            held.ghost = this.root.appendChild(element('div', {
                class: `moves-ghost moves-of-${move.brings}` }, this.called(move)));
            this.root.classList.add('moves-dragging');
            this.dragged = true;
        }
        held.ghost.style.transform = `translate(${event.clientX + 8}px, ${event.clientY + 8}px)`;
        const over = this.below(event);
        for (const part of this.root.querySelectorAll('.moves-base [data-place], .moves-base [data-slot]'))
            part.classList.toggle('moves-over', over === held.place
                && (part.dataset.place ?? part.dataset.slot) === held.place);
    }

    // The place of the base below the pointer; `elsewhere` in the base, null outside of it.
    below(event) {
        const at = document.elementFromPoint(event.clientX, event.clientY);
        const side = at?.closest?.('.moves-base');
        if (!side || !this.root.contains(side)) return null;
        return at.closest('[data-slot]')?.dataset.slot ?? at.closest('[data-place]')?.dataset.place ?? 'elsewhere';
    }

    letGo(event) {
        const { held } = this;
        if (!held) return;
        const over = held.ghost ? this.below(event) : null, pressed = !held.ghost
            && !event.target.closest?.('[data-handle]');
        this.release();
        setTimeout(() => { this.dragged = false; });  // after the click that ends a drag
        // Of a drawing a click takes its place, as that of a handle does.
        if (pressed) return this.put(held.place);
        if (over === held.place) this.set({ drop: held.place });
        else if (over !== null) this.hint(`What was at the ${held.place} goes to the ${held.place}.`);
    }

    release() {
        this.held?.ghost?.remove();
        this.held = null;
        this.root.classList.remove('moves-dragging');
        for (const part of this.root.querySelectorAll('.moves-over')) part.classList.remove('moves-over');
    }

    hint(text) { this.root.querySelector('.moves-outcome').textContent = text; }

    key(event) {
        if (event.key !== 'Escape') return;
        if (this.held) this.release();
        else if (this.state.drop !== 'nothing') this.set({ drop: 'nothing' });
    }
}

export default function ({ data, parentElement, setTriggerValue }) {
    const root = rootIn(parentElement, 'moves');
    root.moves ??= new Moves(root);
    root.moves.show(data, state => setTriggerValue('state', state));
}
