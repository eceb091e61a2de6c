// A drawn problem, the tokens of which are clicked, or drawn over with the mouse held.
//
// data.html     the problem, drawn by the library; tokens have their position as data-token
// data.chosen   {queries, keys}: tokens that somebody has chosen
// data.written  {queries, keys}: tokens of which something is written, which are marked
// data.label    what the problem is called
// data.turn     the number of the last telling that the server has heard of
//
// Triggers `chosen`, {queries, keys, turn}, when the mouse is let go or a key is pressed.
const MARK = { queries: 'token-query', keys: 'token-key' };
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

class Tokens {
    constructor(root) {
        this.role = 'queries';
        this.problem = element('div', { class: 'tokens-problem', role: 'group' });
        this.bar = element('div', { class: 'tokens-bar', role: 'group',
                                    'aria-label': 'What a click chooses' });
        root.append(this.problem, this.bar);
        this.problem.onpointerdown = event => this.begin(event);
        this.problem.onpointermove = event => this.over(event);
        this.problem.onpointerup = this.problem.onpointercancel = () => this.end();
        this.problem.onkeydown = event => this.key(event);
    }

    show(data, report) {
        const late = isLate(this, data);
        Object.assign(this, { data, report });
        this.problem.setAttribute('aria-label', data.label);
        if (this.shown !== data.html) {
            this.shown = data.html;
            this.problem.innerHTML = data.html;
            this.all = [...this.problem.querySelectorAll('[data-token]')];
            this.all.forEach((token, at) => {
                token.setAttribute('role', 'button');
                token.tabIndex = at ? -1 : 0;
            });
        }
        // What comes back from the server does not undo what was chosen since.
        if (!late && !this.drawing) this.chosen = Object.fromEntries(
            Object.entries(data.chosen).map(([role, tokens]) => [role, new Set(tokens)]));
        this.draw();
    }

    draw() {
        for (const token of this.all) {
            const number = Number(token.dataset.token);
            for (const [role, mark] of Object.entries(MARK)) token.classList.toggle(
                mark, this.data.written[role].includes(number) || this.chosen[role].has(number));
            token.setAttribute('aria-pressed', this.chosen[this.role].has(number));
        }
        const some = this.chosen.queries.size + this.chosen.keys.size > 0;
        refill(this.bar, 'Click tokens to patch only these, as',
            ...Object.keys(MARK).map(role => button({
                'data-role': role, 'aria-pressed': role === this.role,
                onclick: () => { this.role = role; this.draw(); } }, role)),
            ...(some ? [button({ 'data-role': 'none', title: 'Patch the whole place again',
                                 onclick: () => this.none() }, 'all again')] : []));
    }

    token(event) {
        const found = document.elementFromPoint(event.clientX, event.clientY);
        return found?.closest('[data-token]');
    }

    // The first token says whether those that are drawn over are chosen or let go.
    begin(event) {
        const token = this.token(event);
        if (!token || event.button !== 0) return;
        this.on = !this.chosen[this.role].has(Number(token.dataset.token));
        this.drawing = true;
        this.problem.setPointerCapture(event.pointerId);  // it may be let go beside it
        this.take(token);
    }

    over(event) {
        const token = this.drawing ? this.token(event) : null;
        if (token && this.problem.contains(token)) this.take(token);
    }

    end() {
        if (!this.drawing) return;
        this.drawing = false;
        this.tell();
    }

    take(token) {
        const number = Number(token.dataset.token), chosen = this.chosen[this.role];
        if (this.on) chosen.add(number); else chosen.delete(number);
        this.draw();
    }

    key(event) {
        const at = this.all.indexOf(event.target.closest('[data-token]'));
        if (at < 0) return;
        const token = this.all[at];
        if (event.key in STEPS) {
            const next = this.all[Math.max(0, Math.min(this.all.length - 1,
                                                       at + STEPS[event.key]))];
            token.tabIndex = -1;
            next.tabIndex = 0;
            next.focus();
        } else if (event.key === 'Enter' || event.key === ' ') {
            this.on = !this.chosen[this.role].has(Number(token.dataset.token));
            this.take(token);
            this.tell();
        } else return;
        event.preventDefault();
    }

    none() {
        for (const chosen of Object.values(this.chosen)) chosen.clear();
        this.draw();
        this.tell();
    }

    tell() {
        this.report(turned(this, Object.fromEntries(Object.entries(this.chosen).map(
            ([role, tokens]) => [role, [...tokens]]))));
    }
}

export default function ({ data, parentElement, setTriggerValue }) {
    const root = rootIn(parentElement, 'tokens');
    root.tokens ??= new Tokens(root);
    root.tokens.show(data, told => setTriggerValue('chosen', told));
}
