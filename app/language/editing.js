// A prompt whose words are changed in place: a word that is clicked becomes a field.
//
// data.text    the prompt
// data.edited  the prompt as it was edited last, or the same
// data.most    characters of a text that is taken: a word becomes no longer than there is room
// data.turn    the number of the last telling that the server has heard of
//
// Triggers `edited`, the whole text and its `turn`, when a word was changed: by Enter, or by leaving
// the field.
const partsOf = text => text.match(/\s+|\S+/g) ?? [];
const isWord = part => /\S/.test(part);

class Editing {
    constructor(root) {
        this.root = root;
        this.at = 0;  // the word that the Tab key goes to
        root.setAttribute('role', 'group');
        root.setAttribute('aria-label',
            'Words of the prompt: the arrow keys go from one to the next, Enter changes it');
        root.addEventListener('keydown', event => this.step(event));
    }

    show(data, report) {
        Object.assign(this, { report });
        if (isLate(this, data)) return;
        if (this.writing) {  // what is being written stays
            this.waiting = data;
            return;
        }
        const { text, edited, most } = data, shown = JSON.stringify([text, edited, most]);
        if (shown === this.shown) return;
        Object.assign(this, { shown, own: text, most });
        this.become(edited);
    }

    become(edited) {
        const before = partsOf(this.own);
        this.parts = partsOf(edited);
        const same = before.length === this.parts.length;  // else nobody knows which was which
        this.was = this.parts.map((part, i) => same && before[i] !== part ? before[i] : null);
        this.changed = this.own !== edited;
        this.fill();
    }

    // Show a text at once, and tell the page.
    tell(edited) {
        this.shown = null;
        this.become(edited);
        this.report(turned(this, { edited }));
    }

    fill() {
        const words = this.parts.map((part, i) => !isWord(part) ? part : button({
            class: this.was[i] === null ? 'editing-word' : 'editing-word editing-new',
            'data-word': i, tabindex: -1, onclick: () => this.open(i),
            'aria-label': this.was[i] === null ? null : `${part}, which was ${this.was[i]}`,
        }, ...this.was[i] === null ? [] : [element('del', {}, this.was[i]), ' '], part));
        const back = this.changed ? [' ', button({
            class: 'editing-back', 'data-back': '', onclick: () => this.tell(this.own),
        }, 'Undo')] : [];
        refill(this.root, ...words, ...back);
        this.focusable(this.at);
    }

    // Make the n-th word the one that the Tab key goes to, and return it.
    focusable(n) {
        const words = [...this.root.querySelectorAll('[data-word]')];
        this.at = Math.max(0, Math.min(words.length - 1, n));
        words.forEach((word, i) => { word.tabIndex = i === this.at ? 0 : -1; });
        return words[this.at];
    }

    step(event) {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by || !event.target.matches('[data-word]')) return;
        event.preventDefault();
        this.focusable(this.at + by)?.focus();
    }

    open(i) {
        const word = this.root.querySelector(`[data-word="${i}"]`);
        const was = this.parts[i];
        const room = this.most - this.parts.join('').length;
        const field = element('input', {
            class: 'editing-field', value: was, 'aria-label': `In place of ${was}`,
            maxlength: was.length + Math.max(room, 0), size: Math.max(4, was.length + 2),
        });
        this.at = [...this.root.querySelectorAll('[data-word]')].indexOf(word);
        let left = false;
        const leave = (keeps, focus) => {
            if (left) return;
            left = true;
            const { waiting } = this, text = field.value.trim();
            Object.assign(this, { writing: false, waiting: null });
            if (waiting) this.show(waiting, this.report);
            if (keeps && text && text !== was && this.parts[i] === was)
                this.tell(this.parts.map((part, n) => n === i ? text : part).join(''));
            else this.fill();
            if (focus) this.focusable(this.at)?.focus();
        };
        field.addEventListener('blur', () => leave(true, false));
        field.addEventListener('keydown', event => {
            event.stopPropagation();
            if (event.key !== 'Enter' && event.key !== 'Escape') return;
            event.preventDefault();  // nor does it press the word that gets the focus
            leave(event.key === 'Enter', true);
        });
        this.writing = true;
        word.replaceWith(field);
        field.focus();
        field.select();
    }
}

export default function ({ data, parentElement, setTriggerValue }) {
    const root = rootIn(parentElement, 'editing');
    root.editing ??= new Editing(root);
    root.editing.show(data, told => setTriggerValue('edited', told));
}
