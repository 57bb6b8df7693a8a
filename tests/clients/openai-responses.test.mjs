// The official Node library: responses, their streams, stored conversations, tools.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import OpenAI from 'openai';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { createAccount } from './operator-api.mjs';

const MODEL = 'svc-native-fast';
const TEXT = 'Hello from Node!';
const HELLO = ask(TEXT);
const OSLO = '[[sim tool=get_weather {"city": "Oslo"}]]';
const UTC = '[[sim tool=get_time {"zone": "UTC"}]]';
const WEI = '[[sim tool=convert_units {"amount": "1.5", "from": "ether", "to": "wei"}]]';
const RESULT = /"result":"1500000000000000000"/;
const TOOLS = [
  zodResponsesFunction({ name: 'get_weather', parameters: z.object({ city: z.string() }) }),
  zodResponsesFunction({ name: 'get_time', parameters: z.object({ zone: z.string() }) }),
];
const Person = z.object({ name: z.string(), age: z.number().int(), mood: z.enum(['glad', 'sad']) });

const account = await createAccount();
const client = new OpenAI({ apiKey: account.key, maxRetries: 0, timeout: 30_000 });
const { responses } = client;

function ask(input, more = {}) {
  return { model: MODEL, input, ...more };
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

// The response as on the wire, without the fields that the library computes.
const ADDED = new Set(['output_text', 'output_parsed', 'parsed', 'parsed_arguments']);
const onTheWire = (response) => JSON.parse(JSON.stringify(response, (key, value) => (ADDED.has(key) ? undefined : value)));

async function checkStored(response) {
  assert.deepEqual(onTheWire(await responses.retrieve(response.id)), onTheWire(response));
}

describe('answers', () => {
  test('plain', async () => {
    const response = await responses.create(HELLO);
    assert.deepEqual([response.object, response.model, response.status], ['response', MODEL, 'completed']);
    assert.ok(response.output_text.endsWith(TEXT));
    assert.deepEqual(response.output.map(({ type }) => type), ['message']);
    assert.equal(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens);
    assert.ok(response._request_id);
    await checkStored(response);
  });

  test('items and settings', async () => {
    const settings = { instructions: 'Be brief.', max_output_tokens: 200, temperature: 0.5, top_p: 0.9, metadata: { a: 'b' } };
    const input = [
      { role: 'user', content: 'One' },
      { role: 'assistant', content: 'Two' },
      { role: 'user', content: [{ type: 'input_text', text: 'Three' }] },
    ];
    const response = await responses.create({ model: MODEL, input, ...settings });
    assert.ok(response.output_text.endsWith('Three'));
    for (const [name, value] of Object.entries(settings)) assert.deepEqual(response[name], value);
  });

  test('cut short', async () => {
    const cut = await responses.create(ask('[[sim tokens=50]]', { max_output_tokens: 20 }));
    assert.deepEqual([cut.status, cut.incomplete_details.reason], ['incomplete', 'max_output_tokens']);
    const final = await responses.stream(ask('[[sim finish=length]]')).finalResponse();
    assert.deepEqual([final.status, final.incomplete_details.reason], ['incomplete', 'max_output_tokens']);
    await checkStored(final);
  });
});

describe('streams', () => {
  test('raw', async () => {
    const events = await collect(await responses.create({ ...HELLO, stream: true }));
    assert.deepEqual(events.map(({ sequence_number }) => sequence_number), [...events.keys()]);
    const kinds = events.map(({ type }) => type);
    const inTurn = kinds.filter((kind, at) => kind !== kinds[at - 1]);
    assert.deepEqual(inTurn, [
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ]);
    const deltas = events.filter(({ type }) => type === 'response.output_text.delta');
    const [{ text }] = events.filter(({ type }) => type === 'response.output_text.done');
    assert.equal(deltas.map(({ delta }) => delta).join(''), text);
    await checkStored(events.at(-1).response);
  });

  test('the helper', async () => {
    const stream = responses.stream(HELLO);
    let said = '';
    stream.on('response.output_text.delta', ({ delta }) => (said += delta));
    const final = await stream.finalResponse();
    assert.equal(final.output_text, said);
    assert.ok(said.endsWith(TEXT));
    await checkStored(final);
  });
});

describe('conversations', () => {
  test('a chain', async () => {
    const first = await responses.create(ask('one'));
    const second = await responses.stream(ask('two', { previous_response_id: first.id })).finalResponse();
    assert.equal(second.previous_response_id, first.id);
    const user = (content) => ({ role: 'user', content });
    const again = await responses.create(ask([user('one'), ...first.output, user('two')]));
    assert.deepEqual(again.usage, second.usage);
  });

  test('deleted', async () => {
    const { id } = await responses.create(HELLO);
    await responses.delete(id);
    const gone = { status: 404, code: 'previous_response_not_found', type: 'invalid_request_error' };
    await assert.rejects(responses.retrieve(id), gone);
    await assert.rejects(responses.create(ask('two', { previous_response_id: id })), gone);
  });
});

describe('functions', () => {
  const question = ask(`${OSLO} ${UTC}`, { tools: TOOLS });

  async function checkRoundTrip(called) {
    const calls = called.output.map(({ type, name, parsed_arguments }) => [type, name, parsed_arguments]);
    assert.deepEqual(calls, [
      ['function_call', 'get_weather', { city: 'Oslo' }],
      ['function_call', 'get_time', { zone: 'UTC' }],
    ]);
    await checkStored(called);
    const results = called.output.map(({ call_id, name }) => ({ type: 'function_call_output', call_id, output: `${name} worked` }));
    const chained = await responses.create(ask(results, { tools: TOOLS, previous_response_id: called.id }));
    assert.match(chained.output_text, /get_weather worked; get_time worked/);
    // The library's output items, with their additions, can be sent back unchanged.
    const input = [{ role: 'user', content: question.input }, ...called.output, ...results];
    const inFull = await responses.create(ask(input, { tools: TOOLS }));
    assert.deepEqual(inFull.usage, chained.usage);
  }

  test('plain', async () => checkRoundTrip(await responses.parse(question)));
  test('streamed', async () => checkRoundTrip(await responses.stream(question).finalResponse()));
});

describe('structured output', () => {
  const question = ask('Who?', { text: { format: zodTextFormat(Person, 'person') } });

  test('parse', async () => {
    const { output_parsed, output_text } = await responses.parse(question);
    assert.deepEqual(output_parsed, Person.parse(JSON.parse(output_text)));
  });

  test('streamed', async () => {
    const final = await responses.stream(question).finalResponse();
    Person.parse(final.output_parsed);
    await checkStored(final);
  });
});

describe("the gateway's own tools are not seen", () => {
  const model = 'svc-basic';
  const messages = [{ role: 'user', content: WEI }];

  test('in responses', async () => {
    const streamed = responses.stream({ model, input: WEI }).finalResponse();
    for (const response of [await responses.create({ model, input: WEI }), await streamed]) {
      assert.deepEqual(response.output.map(({ type }) => type), ['message']);
      assert.match(response.output_text, RESULT);
    }
  });

  test('in chat', async () => {
    const { completions } = client.chat;
    const streamed = completions.stream({ model, messages }).finalChatCompletion();
    for (const { choices } of [await completions.create({ model, messages }), await streamed]) {
      assert.equal(choices[0].finish_reason, 'stop');
      assert.match(choices[0].message.content, RESULT);
      assert.ok(!choices[0].message.tool_calls?.length);
    }
  });
});

describe('failures', () => {
  test('before the answer', async () => {
    await assert.rejects(responses.create(ask('Hi', { background: true })), { status: 400, param: 'background' });
    const wrong = new OpenAI({ apiKey: 'sk-wrong', maxRetries: 0 });
    await assert.rejects(wrong.responses.create(HELLO), { status: 401, code: 'invalid_api_key' });
    for (const stream of [false, true]) {
      await assert.rejects(responses.create(ask('[[sim status=529]]', { stream })), { status: 502, code: '529' });
    }
  });

  test('an interrupted stream', async () => {
    const seen = [];
    const read = async () => {
      const stream = await responses.create(ask('[[sim drop_after=3]]', { stream: true }));
      for await (const event of stream) seen.push(event.type);
    };
    const check = (error) => {
      assert.ok(error instanceof OpenAI.APIError);
      assert.deepEqual([error.code, error.type], ['stream_interrupted', 'upstream_stream_error']);
      return true;
    };
    await assert.rejects(read(), check);
    assert.equal(seen.filter((type) => type === 'response.output_text.delta').length, 3);
    await assert.rejects(responses.stream(ask('[[sim drop_after=3]]')).finalResponse(), check);
  });
});
