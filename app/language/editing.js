// A prompt whose words are changed in place: a word that is clicked becomes a field.
//
// data.text    the prompt
// data.edited  the prompt as it was edited last, or the same
// data.most    characters of a text that is taken: a word becomes no longer than there is room
//
// Triggers `edited`, the whole text, when a word was changed: by Enter, or by leaving the field.
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
        if (this.writing) {  // what is being written stays
            this.late = data;
            return;
        }
        if (JSON.stringify(data) === this.drawn) return;
        this.drawn = JSON.stringify(data);
        const before = partsOf(data.text);
        this.parts = partsOf(data.edited);
        const same = before.length === this.parts.length;  // else nobody knows which was which
        this.was = this.parts.map((part, i) => same && before[i] !== part ? before[i] : null);
        this.changed = data.text !== data.edited;
        this.own = data.text;
        this.most = data.most;
        this.fill();
    }

    fill() {
        const words = this.parts.map((part, i) => !isWord(part) ? part : button({
            class: this.was[i] === null ? 'editing-word' : 'editing-word editing-new',
            'data-word': i, tabindex: -1, onclick: () => this.open(i),
            'aria-label': this.was[i] === null ? null : `${part}, which was ${this.was[i]}`,
        }, ...this.was[i] === null ? [] : [element('del', {}, this.was[i]), ' '], part));
        const back = this.changed ? [' ', button({
            class: 'editing-back', 'data-back': '', onclick: () => this.report(this.own),
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
        const room = this.most - this.parts.join('').length;
        const field = element('input', {
            class: 'editing-field', value: this.parts[i], 'aria-label': `In place of ${this.parts[i]}`,
            maxlength: this.parts[i].length + Math.max(room, 0),
            size: Math.max(4, this.parts[i].length + 2),
        });
        this.at = [...this.root.querySelectorAll('[data-word]')].indexOf(word);
        let left = false;
        const leave = (keeps, focus) => {
            if (left) return;
            left = true;
            const late = this.late;
            Object.assign(this, { writing: false, late: null });
            const text = field.value.trim(), parts = [...this.parts];
            parts[i] = text;
            if (keeps && text && text !== this.parts[i]) {
                this.parts[i] = text;  // until the page comes with what it was
                this.report(parts.join(''));
                this.fill();
            } else if (late) this.show(late, this.report);
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
    root.editing.show(data, text => setTriggerValue('edited', text));
}
