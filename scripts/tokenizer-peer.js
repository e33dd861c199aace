// The peer that our tokenizer is checked against: Hugging Face's Rust library through its npm
// package `tokenizers`, and @huggingface/jinja for chat templates. `scripts/check-tokenizer`
// installs both and runs this; NODE_PATH must lead to them.
//   golden DIR                  golden.json of DIR's fixtures on stdout
//   chat CASES DIR              what DIR's templates (FAMILY.jinja) make of the conversations of CASES, on stdout
//   encode TOKENIZER TEXT OUT   each line of TEXT to OUT as u32 count, u32 ids...; prints the rate
'use strict';
const fs = require('fs');
const path = require('path');

const version = (name) => {
  for (const dir of (process.env.NODE_PATH || '').split(':')) {
    const file = path.join(dir, name, 'package.json');
    if (fs.existsSync(file)) return JSON.parse(fs.readFileSync(file, 'utf8')).version;
  }
  return 'unknown';
};

function patched(base, patch) {
  const made = JSON.parse(JSON.stringify(base));
  for (const [key, value] of Object.entries(patch)) {
    if (key === 'model') Object.assign(made.model, value);
    else made[key] = value;
  }
  return made;
}

// Lists of ids that no text gives: cut characters, special tokens, ids that do not exist.
function idLists(size) {
  const lists = [];
  let state = 12345;
  const next = (n) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % n;
  };
  for (let i = 0; i < 6; i++) {
    const list = [];
    for (let k = 0; k < 12; k++) list.push(next(i === 0 ? size + 5 : size));
    lists.push(list);
  }
  return lists;
}

async function golden(dir) {
  const { Tokenizer } = require('tokenizers');
  const plan = JSON.parse(fs.readFileSync(path.join(dir, 'variants.json'), 'utf8'));
  const rows = [];
  for (const { name, base, patch } of plan.variants) {
    const json = patched(JSON.parse(fs.readFileSync(path.join(dir, base + '.json'), 'utf8')), patch);
    const t = Tokenizer.fromString(JSON.stringify(json));
    const texts = [];
    for (const text of plan.texts) {
      const ids = (await t.encode(text, null, { addSpecialTokens: false })).getIds();
      const back = await t.decode(ids, false);
      const plain = await t.decode(ids, true);
      const row = { ids };
      if (back !== text) row.back = back; // left out: the text itself
      if (plain !== back) row.plain = plain; // left out: as back
      texts.push(row);
    }
    const around = (await t.encode('a', null, { addSpecialTokens: true })).getIds();
    const lists = [];
    for (const ids of idLists(t.getVocabSize(true)))
      lists.push({ ids, back: await t.decode(ids, false), plain: await t.decode(ids, true) });
    rows.push(`{"variant":${JSON.stringify(name)},"vocab":${t.getVocabSize(true)},"around":${JSON.stringify(around)},"texts":[\n` +
      texts.map((x) => JSON.stringify(x)).join(',\n') + '],\n"lists":[\n' + lists.map((x) => JSON.stringify(x)).join(',\n') + ']}');
  }
  process.stdout.write(`{"library":"npm tokenizers ${version('tokenizers')} (Hugging Face's Rust library)",\n"variants":[\n${rows.join(',\n')}]}\n`);
}

async function encode(tokenizer, text, out) {
  const { Tokenizer } = require('tokenizers');
  const t = Tokenizer.fromFile(tokenizer);
  const lines = fs.readFileSync(text, 'utf8').split('\n');
  if (lines[lines.length - 1] === '') lines.pop();
  const parts = [];
  let ms = 0, total = 0;
  for (let i = 0; i < lines.length; i += 2000) {
    const from = performance.now();
    const encoded = await t.encodeBatch(lines.slice(i, i + 2000));
    ms += performance.now() - from;
    for (const one of encoded) {
      const ids = one.getIds();
      const row = new Uint32Array(ids.length + 1);
      row[0] = ids.length;
      row.set(ids, 1);
      total += ids.length;
      parts.push(Buffer.from(row.buffer));
    }
  }
  fs.writeFileSync(out, Buffer.concat(parts));
  const bytes = fs.statSync(text).size;
  console.log(JSON.stringify({ bytes, ids: total, ns: Math.round(ms * 1e6) }));
}

// Special tokens that the templates are given.
const TOKENS = {
  'deepseek-r1': ['<\uff5cbegin\u2581of\u2581sentence\uff5c>', '<\uff5cend\u2581of\u2581sentence\uff5c>'],
  'deepseek-v3': ['<\uff5cbegin\u2581of\u2581sentence\uff5c>', '<\uff5cend\u2581of\u2581sentence\uff5c>'],
  gemma3: ['<bos>', '<end_of_turn>'],
  llama2: ['<s>', '</s>'],
  llama3: ['<|begin_of_text|>', '<|eot_id|>'],
  'llama3.1': ['<|begin_of_text|>', '<|eot_id|>'],
  mixtral: ['<s>', '</s>'],
};

async function chat(cases, dir) {
  const { Template } = require('@huggingface/jinja');
  const plan = JSON.parse(fs.readFileSync(cases, 'utf8'));
  const rows = [], Real = Date;
  globalThis.Date = class extends Real { // the templates' clock
    constructor(...given) { super(...(given.length ? given : [plan.date + 'T12:00:00Z'])); }
  };
  for (const file of fs.readdirSync(dir).filter((f) => f.endsWith('.jinja')).sort()) {
    const family = file.slice(0, -6);
    const template = new Template(fs.readFileSync(path.join(dir, file), 'utf8'));
    const [bos_token, eos_token] = TOKENS[family] || ['', ''];
    for (const { name, messages } of plan.cases)
      for (const add_generation_prompt of [false, true]) {
        const row = { family, name, generation: add_generation_prompt };
        try {
          row.text = template.render({
            messages: messages.map(([role, content]) => ({ role, content })),
            bos_token, eos_token, add_generation_prompt,
          });
        } catch (e) {
          row.refused = String(e.message);
        }
        rows.push(JSON.stringify(row));
      }
  }
  process.stdout.write(`{"library":"npm @huggingface/jinja ${version('@huggingface/jinja')}",\n"rows":[\n${rows.join(',\n')}]}\n`);
}

const [, , mode, ...rest] = process.argv;
const modes = { golden, encode, chat };
if (!modes[mode]) {
  console.error(`modes: ${Object.keys(modes).join(', ')}`);
  process.exit(2);
}
modes[mode](...rest).catch((e) => {
  console.error(String(e));
  process.exit(1);
});
