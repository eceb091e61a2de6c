// Bars of the purity of neighbours, a row per label.
const percent = share => `${100 * Math.min(Math.max(share, 0), 1)}%`;

const part = (name, attributes, ...inside) =>
    element('span', { class: `knn-purity-${name}`, ...attributes }, ...inside);

const row = (bar, current, pick) => button({
    class: 'knn-purity-row', title: bar.told, 'data-label': bar.label, 'aria-label': bar.told,
    'aria-pressed': bar.label === current, onclick: () => pick(bar.label),
}, part('name', {}, bar.label), part('track', {},
    part('bar', { style: `width: ${percent(bar.purity)}` }),
    part('shuffled', { style: `left: ${percent(bar.shuffled - bar.spread)};
        width: ${percent(2 * bar.spread)}` })),
part('value', {}, bar.purity.toFixed(2)));

export default function ({ data, parentElement, setTriggerValue }) {
    const list = rootIn(parentElement, 'knn-purity');
    refill(list, ...data.bars.map(bar =>
        row(bar, data.current, label => setTriggerValue('picked', label))));
    // The current one is in sight; the page itself does not scroll.
    const shown = [...list.children].find(one => one.dataset.label === data.current);
    if (shown) {
        const below = shown.offsetTop + shown.offsetHeight - list.clientHeight;
        if (shown.offsetTop < list.scrollTop) list.scrollTop = shown.offsetTop;
        else if (below > list.scrollTop) list.scrollTop = below;
    }
}
