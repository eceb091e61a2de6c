// The menu by which a view is shown to others: its link, its picture, a page of its own, a note.
//
// data.title     of the page
// data.version   of the format of addresses
// data.weights   checksum of each model's weights, by its name in the address
// data.note      the note of this view, or ""
// data.most      letters of a note
//
// Triggers `noted`, the text of the note.
const LONG = 8000; // letters of a link that some programs cut
const EVERYTHING = 'everything';

const saved = (name, blob) => {
    const address = URL.createObjectURL(blob);
    element('a', { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
};

class Share {
    constructor(root) {
        this.root = root;
        this.open = false;
        this.told = element('div', { class: 'share-told', role: 'status', 'aria-live': 'polite' });
        this.link = element('input', { class: 'share-link', readonly: '', hidden: '', 'aria-label': 'Link of this view' });
        this.what = element('select', { 'aria-label': 'What the picture shows' });
        this.note = element('textarea', { rows: 2, 'aria-label': 'Note', placeholder: 'What should they see here?',
            onkeydown: event => {
                event.stopPropagation();
                if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); this.keep(); }
                if (event.key === 'Escape') this.show(false);
            } });
        this.start = button({ class: 'share-start', title: 'Link, picture, page and note of this view',
            'aria-haspopup': 'true', onclick: () => this.show(!this.open) }, 'Share');
        const row = (name, ...inside) => element('div', { class: `share-row share-${name}` }, ...inside);
        this.menu = element('section', { class: 'share-menu', 'aria-label': 'Share this view', hidden: '' },
            row('copy', button({ onclick: () => this.copy() }, 'Copy link'), this.link),
            row('picture', element('b', {}, 'Save picture'), this.what,
                button({ onclick: () => this.picture('png') }, 'PNG'), button({ onclick: () => this.picture('svg') }, 'SVG')),
            row('page', button({ onclick: () => this.page(), title: 'One HTML file with texts, pictures and data, that needs no server' },
                'Save page'), element('small', {}, 'one HTML file')),
            row('note', this.note, button({ onclick: () => this.keep() }, 'Put note into link')),
            this.told);
        root.append(this.start, this.menu);
        root.addEventListener('keydown', event => { if (event.key === 'Escape' && this.open) this.show(false); });
        this.away = event => { if (this.open && !root.contains(event.target)) this.show(false, false); };
        document.addEventListener('pointerdown', this.away);
    }

    update(data, report) {
        Object.assign(this, { data, report });
        this.note.maxLength = data.most;
        if (document.activeElement !== this.note) this.note.value = data.note;
    }

    show(open, focus = true) {
        this.open = open;
        this.menu.hidden = !open;
        this.start.setAttribute('aria-expanded', open);
        this.say('');
        this.link.hidden = true;
        if (open) {
            const names = blocks().filter(({ kind }) => kind === 'figure').map(({ name }) => name);
            this.what.replaceChildren(...[EVERYTHING, ...names].map(name => element('option', { value: name }, name)));
            this.menu.querySelector('button').focus();
        } else if (focus) this.start.focus();
    }

    say(text) {
        this.told.textContent = text;
    }

    // What takes a moment, and may fail: it says so.
    async doing(begun, work) {
        this.say(begun);
        try {
            this.say(await work());
        } catch (error) {
            this.say(`That did not work: ${error.message}`);
            console.error(error);
        }
    }

    // The address of what is shown, with the version of its format and the weights of its models.
    address() {
        const address = new URL(location.href), query = address.searchParams;
        query.set('v', this.data.version);
        query.delete('weights');
        const models = [...query.getAll('model'), ...query.getAll('models')];
        const weights = models.filter(model => this.data.weights[model])
            .map(model => `${this.data.weights[model]}~${model}`);
        if (weights.length) query.set('weights', [...new Set(weights)].join('|'));
        return address.href;
    }

    copy() {
        const link = this.address();
        const long = link.length > LONG ? ` It has ${link.length} letters, which some programs cut.` : '';
        return this.doing('', async () => {
            Object.assign(this.link, { hidden: false, value: link });
            this.link.select();
            try {
                await navigator.clipboard.writeText(link);
            } catch {
                return `The browser keeps its clipboard to itself: copy the link from here.${long}`;
            }
            return `Copied.${long}`;
        });
    }

    file(form) {
        const query = new URLSearchParams(location.search);
        const parts = ['latentcode', this.data.title, query.get('model'), query.get('split'),
            query.get('layer') && `layer ${query.get('layer')}`];
        return `${parts.filter(Boolean).join('-').replace(/[^\w.]+/g, '-').slice(0, 100)}.${form}`;
    }

    picture(form) {
        return this.doing('Drawing …', async () => {
            const all = blocks(), what = this.what.value;
            const shown = what === EVERYTHING ? all : all.filter(({ name }) => name === what);
            const svg = await picture(shown, caption(this.data.title));
            if (!svg) return 'There is nothing to draw.';
            const blob = form === 'png' ? await painted(svg) : new Blob([asText(svg)], { type: 'image/svg+xml' });
            saved(this.file(form), blob);
            return `Saved, ${Math.ceil(blob.size / 1000).toLocaleString('en')} kB.`;
        });
    }

    page() {
        return this.doing('Writing …', async () => {
            const blob = new Blob([await savedPage(this.data.title, this.address())], { type: 'text/html;charset=utf-8' });
            saved(this.file('html'), blob);
            return `Saved, ${Math.ceil(blob.size / 1000).toLocaleString('en')} kB.`;
        });
    }

    keep() {
        this.report(this.note.value.trim().slice(0, this.data.most));
        this.say(this.note.value.trim() ? 'It is in the link now, and above the page.' : 'The link has no note now.');
    }

    end() {
        document.removeEventListener('pointerdown', this.away);
        this.root.remove();
    }
}

const shares = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
    let share = shares.get(parentElement);
    if (!share) shares.set(parentElement, share = new Share(rootIn(parentElement, 'share')));
    share.update(data, text => setTriggerValue('noted', { text, at: Date.now() }));
    return () => { share.end(); shares.delete(parentElement); };
}
