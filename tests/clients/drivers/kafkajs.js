// kafkajs. NODE_PATH names the folder of its packages; ../README.md says what the requests are.
'use strict'
const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, PartitionAssigners, ConfigResourceTypes, logLevel } = require('kafkajs')
const { version } = require('kafkajs/package.json')
const { ZstdCodec } = require('zstd-codec')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.ZSTD] = () => {
  const streaming = new Promise(resolve => ZstdCodec.run(zstd => resolve(new zstd.Streaming())))
  return {
    compress: async encoder => Buffer.from((await streaming).compress(encoder.buffer)),
    decompress: async data => Buffer.from((await streaming).decompress(data)),
  }
}
const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  zstd: CompressionTypes.ZSTD,
}
const QUIET_MS = 300
const PATIENCE_MS = 90000

const say = answer => process.stdout.write(JSON.stringify(answer) + '\n')
const kafka = new Kafka({
  brokers: [process.argv[2]],
  logCreator: () => ({ level, log }) => level <= logLevel.WARN && process.stderr.write(JSON.stringify(log) + '\n'),
})
const text = data => (data === null ? null : data.toString().replace(/\.+$/, ''))
// Offsets are decimal strings; JSON numbers lose the last digits above 2^53, so larger ones stay strings.
const number = offset => (Number.isSafeInteger(Number(offset)) ? Number(offset) : offset)
const numbered = (first, count, partitions, size, time) =>
  Array.from({ length: count }, (_, at) => ({
    key: `k${first + at}`, value: `r${first + at}`.padEnd(size || 0, '.'), partition: partitions[at % partitions.length],
    ...(time ? { timestamp: String(time + at) } : {}),
  }))

async function withAdmin (call, settings = {}) {
  const admin = kafka.admin(settings)
  await admin.connect()
  try { return await call(admin) } finally { await admin.disconnect() }
}

async function send (to, topic, messages, acks, compression) {
  const told = await to.send({ topic, messages, acks, compression })
  return told.filter(part => part.baseOffset !== undefined).map(part => number(part.baseOffset))
}

let member = null

const operations = {
  async hello () { return { client: 'kafkajs', version } },
  async topics () {
    const { topics } = await withAdmin(admin => admin.fetchTopicMetadata())
    return Object.fromEntries(topics.map(topic => [topic.name, topic.partitions.length]))
  },
  async create ({ topic, partitions, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const topics = [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }]
    if (!await withAdmin(admin => admin.createTopics({ topics, waitForLeaders: false }))) {
      throw Object.assign(new Error(topic), { type: 'TOPIC_ALREADY_EXISTS' }) // it only says that it made none
    }
  },
  async delete ({ topic }) { await withAdmin(admin => admin.deleteTopics({ topics: [topic] }), { retry: { retries: 1 } }) },
  async grow ({ topic, partitions }) {
    await withAdmin(admin => admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }))
  },
  async configs ({ topic }) {
    const { resources } = await withAdmin(admin => admin.describeConfigs({
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }], includeSynonyms: false,
    }))
    return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
  },
  async alter ({ topic, name, to }) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value: to }] }]
    await withAdmin(admin => admin.alterConfigs({ resources }))
  },
  async delete_records ({ topic, partition, before }) {
    await withAdmin(async admin => {
      await admin.fetchTopicMetadata({ topics: [topic] }) // its deleteTopicRecords needs metadata loaded before
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    })
    return before
  },
  async cluster () {
    const found = await withAdmin(admin => admin.describeCluster())
    return { id: found.clusterId, nodes: found.brokers.map(node => `${node.host}:${node.port}`) }
  },
  async produce ({ topic, partitions, first, count, codec = 'none', acks = 'all', idempotent = false, size, time, settings }) {
    const producer = kafka.producer({ idempotent, allowAutoTopicCreation: false, ...(settings || {}) })
    await producer.connect()
    const messages = numbered(first, count, partitions, size, time)
    try {
      return await send(producer, topic, messages, acks === 'all' ? -1 : Number(acks), CODECS[codec])
    } finally { await producer.disconnect() }
  },
  async consume ({ topic, partitions, count, start = 'earliest', isolation = 'uncommitted' }) {
    // It has no assign: a group of its own, whose positions are set before.
    const groupId = `reads-by-itself-${process.pid}-${Date.now()}`
    const wanted = start === 'earliest'
      ? (await withAdmin(admin => admin.fetchTopicOffsets(topic))).map(({ partition, low }) => ({ partition, offset: low }))
      : partitions.map(partition => ({ partition, offset: String(start) }))
    const consumer = kafka.consumer({ groupId, readUncommitted: isolation === 'uncommitted', maxWaitTimeInMs: 100 })
    const found = {}
    let seen = 0
    let quiet = count === 0 ? Date.now() + 3000 : Date.now() + PATIENCE_MS
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (!partitions.includes(partition)) return
        (found[partition] = found[partition] || []).push([number(message.offset), text(message.value)])
        if (++seen === count) quiet = Date.now() + QUIET_MS
      },
    })
    for (const { partition, offset } of wanted) consumer.seek({ topic, partition, offset })
    while (Date.now() < quiet) await new Promise(resolve => setTimeout(resolve, 50))
    await consumer.disconnect()
    return found
  },
  async offsets ({ topic, partition, at }) {
    return withAdmin(async admin => {
      const ends = (await admin.fetchTopicOffsets(topic)).find(one => one.partition === partition)
      const found = []
      for (const wanted of at) {
        if (wanted === 'earliest') found.push(number(ends.low))
        else if (wanted === 'latest') found.push(number(ends.high))
        else {
          const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, wanted)
          found.push(number(byTime.find(one => one.partition === partition).offset))
        }
      }
      return found
    })
  },
  async committed ({ group, topic, partitions }) {
    const [found] = await withAdmin(admin => admin.fetchOffsets({ groupId: group, topics: [topic] }))
    const offsets = Object.fromEntries(found.partitions.map(one => [one.partition, Number(one.offset)]))
    return partitions.map(partition => (offsets[partition] >= 0 ? offsets[partition] : null))
  },
  async groups () { return (await withAdmin(admin => admin.listGroups())).groups.map(group => group.groupId) },
  async describe_group ({ group }) {
    const { groups: [found] } = await withAdmin(admin => admin.describeGroups([group]))
    return { state: found.state, members: found.members.length, strategy: found.protocol }
  },
  async delete_group ({ group }) { await withAdmin(admin => admin.deleteGroups([group])) },
  async set_offset ({ group, topic, partition, to }) {
    await withAdmin(admin => admin.setOffsets({ groupId: group, topic, partitions: [{ partition, offset: String(to) }] }))
  },
  async join ({ group, topic }) {
    const consumer = kafka.consumer({
      groupId: group, partitionAssigners: [PartitionAssigners.roundRobin], heartbeatInterval: 500, maxWaitTimeInMs: 100,
    })
    const state = { assigned: [], records: {}, error: '' }
    const positions = {}
    member = { consumer, state, topic, positions }
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      state.assigned = (payload.memberAssignment[topic] || []).map(String).sort()
    })
    consumer.on(consumer.events.REBALANCING, () => { state.assigned = [] })
    consumer.on(consumer.events.CRASH, ({ payload }) => { state.error = String(payload.error) })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: true,
      autoCommitThreshold: 1,
      eachMessage: async ({ partition, message }) => {
        (state.records[partition] = state.records[partition] || []).push([number(message.offset), text(message.value)])
        positions[partition] = message.offset
      },
    })
  },
  async state () { return member.state },
  async commit () {
    const offsets = Object.entries(member.positions)
      .filter(([partition]) => member.state.assigned.includes(partition))
      .map(([partition, offset]) => ({ topic: member.topic, partition: Number(partition), offset: String(BigInt(offset) + 1n) }))
    await member.consumer.commitOffsets(offsets)
  },
  async leave () { await member.consumer.disconnect() },
  async transact ({ name, topic, partitions, steps }) {
    const producer = kafka.producer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    for (const [first, count, outcome] of steps) {
      const transaction = await producer.transaction()
      await send(transaction, topic, numbered(first, count, partitions), -1)
      await (outcome === 'commit' ? transaction.commit() : transaction.abort())
    }
    await producer.disconnect()
  },
  async move ({ name, group, source, to, count, outcome }) {
    const [begun] = await operations.committed({ group, topic: source, partitions: [0] })
    const start = begun === null ? 'earliest' : begun
    const available = (await operations.consume({ topic: source, partitions: [0], count, start, isolation: 'committed' }))[0]
    const taken = available.slice(0, count)
    const producer = kafka.producer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    const transaction = await producer.transaction()
    await send(transaction, to, taken.map(([, value]) => ({ value, partition: 0 })), -1)
    const offset = String(taken[taken.length - 1][0] + 1)
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions: [{ partition: 0, offset }] }] })
    await (outcome === 'commit' ? transaction.commit() : transaction.abort())
    await producer.disconnect()
  },
  async fence ({ name, topic }) {
    const settings = { transactionalId: name, maxInFlightRequests: 1, idempotent: true, retry: { retries: 2 } }
    const [first, second] = [kafka.producer(settings), kafka.producer(settings)]
    await first.connect()
    const transaction = await first.transaction()
    await send(transaction, topic, numbered(0, 1, [0]), -1)
    await second.connect()
    const next = await second.transaction()
    try {
      await send(transaction, topic, numbered(1, 1, [0]), -1)
      await transaction.commit()
    } finally {
      await next.abort()
      await Promise.all([first.disconnect(), second.disconnect()])
    }
  },
}

// One request at a time, as the other drivers do.
let before = Promise.resolve()
readline.createInterface({ input: process.stdin }).on('line', line => {
  before = before.then(async () => {
    const { do: operation, ...request } = JSON.parse(line)
    try {
      say({ ok: (await operations[operation](request)) ?? null })
    } catch (error) {
      const group = error.groups && error.groups.find(one => one.errorCode)
      const cause = group ? group.error : error.errors && error.errors.length ? error.errors[0] : error.cause && error.cause.type ? error.cause : error
      say({ error: String(cause.type || cause.name), message: String(cause.message) })
    }
  })
}).on('close', () => { before.then(() => process.exit(0)) })
