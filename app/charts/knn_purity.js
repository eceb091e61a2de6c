// Bars of the purity of neighbours, a row per label. Text from files is text, never markup.
const percent = share => `${100 * Math.min(Math.max(share, 0), 1)}%`;

const part = (parent, name, text = '') => {
    const element = document.createElement('span');
    element.className = `knn-purity-${name}`;
    element.textContent = text;
    parent.append(element);
    return element;
};

const row = (bar, current, pick) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'knn-purity-row';
    button.title = bar.told;
    button.dataset.label = bar.label;
    button.setAttribute('aria-pressed', String(bar.label === current));
    button.setAttribute('aria-label', bar.told);
    part(button, 'name', bar.label);
    const track = part(button, 'track');
    part(track, 'bar').style.width = percent(bar.purity);
    const band = part(track, 'shuffled');
    band.style.left = percent(bar.shuffled - bar.spread);
    band.style.width = percent(2 * bar.spread);
    part(button, 'value', bar.purity.toFixed(2));
    button.onclick = () => pick(bar.label);
    return button;
};

export default function ({ data, parentElement, setTriggerValue }) {
    let list = parentElement.querySelector('.knn-purity');
    if (!list) {
        list = document.createElement('div');
        list.className = 'knn-purity';
        parentElement.append(list);
    }
    const focused = list.contains(document.activeElement)
        ? document.activeElement.dataset.label : null;
    list.replaceChildren(...data.bars.map(bar =>
        row(bar, data.current, label => setTriggerValue('picked', label))));
    const find = label => [...list.children].find(one => one.dataset.label === label);
    find(focused)?.focus({ preventScroll: true });
    // The current one is in sight; the page itself does not scroll.
    const shown = find(data.current);
    if (shown) {
        const below = shown.offsetTop + shown.offsetHeight - list.clientHeight;
        if (shown.offsetTop < list.scrollTop) list.scrollTop = shown.offsetTop;
        else if (below > list.scrollTop) list.scrollTop = below;
    }
}
