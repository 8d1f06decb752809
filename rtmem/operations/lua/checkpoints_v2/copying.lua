-- Copying: what belongs to some checkpoints out of one thread, and into another.

-- Everything that belongs to some checkpoints, to be stored under another thread.
-- ARGV members
-- Replies  {member, record, tasks, {task writes, ...}, ranges of its pieces, run_id, {references of its writes}, member,
--          ...}
local function export(keys, argv)
  local c, reply = keys[1], {}
  check_thread(c)
  for _, member in ipairs(argv) do
    local raw = redis.call('HGET', c, 'c' .. member)
    if raw then
      local tasks, writes = tasks_of(c, member), {}
      local may_refer, references = redis.call('HEXISTS', c, 'y') == 1, {}
      for at = 2, #tasks do
        local packed = redis.call('HGET', c, 'w' .. member .. '\0' .. tasks[at])
        writes[#writes + 1] = packed
        local list = may_refer and cmsgpack.unpack(packed) or {}
        for k = 4, #list, 3 do
          if is_reference(list[k]) then references[#references + 1] = list[k] end
        end
      end
      local n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = member, raw, cmsgpack.pack(tasks), writes
      local r = unpack_record(raw)
      reply[n + 5], reply[n + 6], reply[n + 7] = format_ranges(normal(ranges_of(r.entries))), r.run_id, references
    end
  end
  return reply
end

-- Reserve numbers for pieces of another thread. They count as trash until a record refers to them, so that a copy
-- that was broken off leaves nothing behind.  ARGV 1 how many numbers  2 ttl_ms  3 a nonce
-- Replies  {the first number, epoch}: the copy has to begin again once a sweep ends the epoch, because that sweep may
--          free what is copied before a record refers to it
local function reserve(keys, argv)
  local c, i, d = keys[1], keys[2], keys[3]
  check_thread(c)
  local first = tonumber(redis.call('HGET', c, 'n') or '1')
  redis.call('HSET', c, 'v', LAYOUT, 'n', string.format('%d', first + tonumber(argv[1])))
  redis.call('HSETNX', c, 'g', argv[3])
  redis.call('HDEL', c, 's')
  redis.call('DEL', d)
  if tonumber(argv[1]) > 0 then add_trash(c, {{first, tonumber(argv[1])}}) end
  expire(c, i, argv[2])
  return {string.format('%d', first), redis.call('HGET', c, 'g')}
end

-- The writes of a task, with the references that they have in the copy.
local function refer_to_others(c, packed, others)
  local writes, changed = cmsgpack.unpack(packed), false
  for k = 4, #writes, 3 do
    local other = others[writes[k]]
    if other then
      writes[k], changed = other, true
      refer(c, other, 'w')
      redis.call('HSET', c, 'y', '1')
    end
  end
  return changed and cmsgpack.pack(writes) or packed
end

-- ARGV  1 epoch  2 ttl_ms  3 ranges of pieces that this transaction has stored: trash until a record refers to them
--       4 shift of the piece numbers  5 that of large ones  6 how many references to pointers become others, each with
--       its other one, then per checkpoint: member, record, tasks, number of task writes, task writes
-- Replies  {1, or 0 if the epoch is over, ids of pointers that are not needed (any more)}
local function import(keys, argv)
  local c, i = keys[1], keys[2]
  local stored, others, freed = parse_ranges(argv[3]), {}, {}
  local function shifted(number) return number + tonumber(number < LARGE and argv[4] or argv[5]) end
  for k = 7, 6 + 2 * tonumber(argv[6]), 2 do others[argv[k]] = argv[k + 1] end
  local at = 7 + 2 * tonumber(argv[6])
  if redis.call('HGET', c, 'g') ~= argv[1] then
    delete_pieces(c, stored, math.huge, freed)
    return {0, unneeded(c, freed)}
  end
  check_thread(c)
  for _, range in ipairs(stored) do
    for number = math.max(range[1], OFFLOADED), range[1] + range[2] - 1 do
      local name = string.format('%d', number)
      refer(c, redis.call('HGET', c, name), name)
    end
  end
  add_trash(c, stored)
  local early = redis.call('HGET', c, 'e')
  while at <= #argv do
    local member, r, tasks = argv[at], unpack_record(argv[at + 1]), cmsgpack.unpack(argv[at + 2])
    -- Its pieces have other numbers: who holds it by its old nonce, because it was copied from here once, must not build
    -- on it.
    r.nonce = redis.sha1hex(r.nonce .. argv[4] .. ' ' .. argv[5]):sub(1, 16)
    for k = 1, #r.entries, 4 do
      local kind, data = r.entries[k + 2], r.entries[k + 3]
      if kind == 'p' then
        r.entries[k + 3] = string.format('%d', shifted(tonumber(data)))
      elseif kind == 'l' then
        local ranges = parse_ranges(data)
        for _, range in ipairs(ranges) do range[1] = shifted(range[1]) end
        r.entries[k + 3] = format_ranges(ranges)
      end
    end
    if early then
      settle_early(c, early, false, member, '', freed)
      early = redis.call('HGET', c, 'e')
    end
    local old = redis.call('HGET', c, 'c' .. member)
    if old then add_trash(c, ranges_of(unpack_record(old).entries)) end
    delete_writes(c, member, freed)
    redis.call('HSET', c, 'c' .. member, pack_record(r))
    redis.call('ZADD', i, 0, member)
    if redis.call('HEXISTS', c, 'm') == 1 then tell_sweep(c, r.entries) end
    if #tasks > 1 then
      redis.call('HSET', c, 't' .. member, cmsgpack.pack(tasks))
      for k = 2, #tasks do
        local packed = argv[at + 2 + k]
        if next(others) then packed = refer_to_others(c, packed, others) end
        redis.call('HSET', c, 'w' .. member .. '\0' .. tasks[k], packed)
      end
    end
    local head_field = 'h' .. namespace_of(member)
    local head = redis.call('HGET', c, head_field)
    if not head or is_after(member, head) then redis.call('HSET', c, head_field, member) end
    at = at + 4 + tonumber(argv[at + 3])
  end
  expire(c, i, argv[2])
  return {1, unneeded(c, freed)}
end

redis.register_function{function_name = 'rtmem_v2_checkpoint_export', callback = export, flags = {'no-writes'}}
redis.register_function('rtmem_v2_checkpoint_reserve', reserve)
redis.register_function('rtmem_v2_checkpoint_import', import)
