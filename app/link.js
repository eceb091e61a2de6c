// The button that copies the link of the view: its address, with the version of the format of
// addresses and the checksums of its models' weights.
//
// data.version   of the format
// data.weights   checksum of each model's weights, by its name in the address
const SHOWN = 2000;  // milliseconds for which the button says that the link is copied

const addressOf = ({ version, weights }) => {
    const address = new URL(location.href), query = address.searchParams;
    const models = new Set([...query.getAll('model'), ...query.getAll('models')]);
    const known = [...models].filter(model => weights[model]).map(model => `${weights[model]}~${model}`);
    query.set('v', version);
    query.delete('weights');
    if (known.length) query.set('weights', known.join('|'));
    return address.href;
};

export default function ({ data, parentElement }) {
    const root = rootIn(parentElement, 'link');
    // Where the browser keeps its clipboard to itself, the link stands beside the button.
    const field = element('input', { readonly: '', hidden: '', 'aria-label': 'Link of this view' });
    const copy = button({
        title: 'The link opens this view where latentcode explore runs on the same folders',
        onclick: async () => {
            field.value = addressOf(data);
            try {
                await navigator.clipboard.writeText(field.value);
                copy.textContent = 'Copied';
                setTimeout(() => { copy.textContent = 'Copy link'; }, SHOWN);
            } catch {
                field.hidden = false;
                field.select();
            }
        } }, 'Copy link');
    root.replaceChildren(field, copy);
    return () => root.remove();
}
