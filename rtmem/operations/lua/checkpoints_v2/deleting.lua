-- Deleting: a thread, some of its checkpoints, and what nobody refers to any more.

-- ARGV  1 the highest member that is dead from now on  2 ttl_ms of the tombstone  3 fencing token or ''
-- Replies the time
local function delete_thread(keys, argv)
  check_fence(keys[1], argv[3])
  local time = redis.call('TIME')
  local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
  redis.call('SET', keys[3], argv[1] .. now, 'PX', argv[2])
  -- UNLINK frees in another thread: a long thread does not hold the server.
  redis.call('UNLINK', keys[1], keys[2])
  return now
end

-- What prune and delete_for_runs decide on, oldest first.
-- ARGV  1 start: '-' or '(' and a member   2 how many
-- Replies  {cursor or '', member, parent, run_id, delta channels, channels with a value, member, ...}
local function skeleton(keys, argv)
  local c = keys[1]
  check_thread(c)
  local members = redis.call('ZRANGEBYLEX', keys[2], argv[1], '+', 'LIMIT', 0, argv[2])
  local page = {#members < tonumber(argv[2]) and '' or '(' .. members[#members]}
  for _, member in ipairs(members) do
    local r = read_record(c, member)
    local valued = {}
    for at = 1, #r.entries, 4 do
      if r.entries[at + 2] ~= '-' then valued[#valued + 1] = r.entries[at] end
    end
    local n = #page
    page[n + 1], page[n + 2], page[n + 3], page[n + 4], page[n + 5] = member, r.parent, r.run_id, r.delta, valued
  end
  return page
end

local function namespace_of(member)
  return member:sub(member:find('\0', 1, true) + 1)
end

-- Name the latest checkpoint of some namespaces anew, in one pass over the index however many they are.
local function renew_heads(c, i, namespaces)
  local start = '+'
  while next(namespaces) do
    local members = redis.call('ZREVRANGEBYLEX', i, start, '-', 'LIMIT', 0, 200)
    if #members == 0 then break end
    for _, member in ipairs(members) do
      local ns = namespace_of(member)
      if namespaces[ns] then
        redis.call('HSET', c, 'h' .. ns, member)
        namespaces[ns] = nil
      end
      start = '(' .. member
    end
  end
  for ns in pairs(namespaces) do redis.call('HDEL', c, 'h' .. ns) end
end

-- A thread without checkpoints and without anything that waits does not exist.
local function drop_empty(c, i)
  if redis.call('EXISTS', i) == 1 then return end
  local waiting = redis.call('HMGET', c, 'e', 'f', 'x', 'm')
  if not (waiting[1] or waiting[2] or waiting[3] or waiting[4]) then redis.call('UNLINK', c) end
end

-- Delete some checkpoints with their writes. Their pieces become trash, for the sweep.
-- ARGV  1 fencing token or ''  then members   Replies  {how many there were, ids of pointers that are not needed any more}
local function forget(keys, argv)
  local c, i = keys[1], keys[2]
  check_thread(c)
  check_fence(c, argv[1])
  local gone, deleted, headless, freed = {}, 0, {}, {}
  for at = 2, #argv do
    local member = argv[at]
    if redis.call('HEXISTS', c, 'c' .. member) == 1 then
      take_out(c, i, member, gone, freed)
      deleted = deleted + 1
      local ns = namespace_of(member)
      if redis.call('HGET', c, 'h' .. ns) == member then headless[ns] = true end
    end
  end
  renew_heads(c, i, headless)
  add_trash(c, gone)
  drop_empty(c, i)
  return {deleted, unneeded(c, freed)}
end

-- What a shallow saver owes a namespace in which a full one wrote: that its latest checkpoint is the only one.
-- ARGV  1 head field   2 start: '-' or '(' and a member
-- Replies  {where to go on or '', ids of pointers that are not needed any more}
local function shrink(keys, argv)
  local c, i = keys[1], keys[2]
  check_thread(c)
  local head, suffix, gone, freed = redis.call('HGET', c, argv[1]), '\0' .. argv[1]:sub(2), {}, {}
  local members = redis.call('ZRANGEBYLEX', i, argv[2], '+', 'LIMIT', 0, SWEEP_RECORDS)
  for _, member in ipairs(members) do
    if member ~= head and member:sub(-#suffix) == suffix then take_out(c, i, member, gone, freed) end
  end
  add_trash(c, gone)
  return {#members < SWEEP_RECORDS and '' or '(' .. members[#members], unneeded(c, freed)}
end

-- Delete writes that no checkpoint ever followed, up to the newest member the caller has seen.
-- ARGV  1 member  2 fencing token or ''   Replies  {how many are left, ids of pointers that are not needed any more}
local function forget_early(keys, argv)
  local c, waiting, freed = keys[1], {}, {}
  check_thread(c)
  check_fence(c, argv[2])
  for _, member in ipairs(early_members(c)) do
    if is_after(member, argv[1]) then waiting[#waiting + 1] = member else delete_writes(c, member, freed) end
  end
  set_early(c, waiting)
  return {#waiting, unneeded(c, freed)}
end

-- One step of freeing the pieces that nobody refers to any more.
-- Replies  {1 while there is more to do, ids of pointers that are not needed any more}
--
-- Mark: read every record, page by page, and unite what they refer to; put() adds what is written meanwhile.
-- Free: trash that is not live. A put cannot refer to it: its base would be a record, hence live. Trash that arrives
-- after the mark began waits for the next sweep, because the records it came from may have been marked already.
local function sweep(keys, argv)
  local c, i = keys[1], keys[2]
  check_thread(c)
  local state, freed = redis.call('HGET', c, 'm'), {}
  local m
  if state then
    m = cmsgpack.unpack(state)
  else
    local trash = redis.call('HGET', c, 'x')
    if not trash then return {0, ''} end
    m = {'mark', '-', '', trash}
    redis.call('HDEL', c, 'x', 'g')
  end
  if m[1] == 'mark' then
    local members = redis.call('ZRANGEBYLEX', i, m[2], '+', 'LIMIT', 0, SWEEP_RECORDS)
    local live = parse_ranges(m[3])
    for _, member in ipairs(members) do
      ranges_of(read_record(c, member).entries, live)
      m[2] = '(' .. member
    end
    m[3] = format_ranges(normal(live))
    if #members < SWEEP_RECORDS then
      m[1], m[4] = 'free', format_ranges(minus(normal(parse_ranges(m[4])), normal(live)))
    end
  else
    m[4] = format_ranges(delete_pieces(c, parse_ranges(m[4]), SWEEP_PIECES, freed))
  end
  if m[1] == 'free' and m[4] == '' then
    redis.call('HDEL', c, 'm')
    if redis.call('HEXISTS', c, 'x') == 1 then return {1, unneeded(c, freed)} end
    -- With one checkpoint and no garbage, a thread is as shallow savers leave it, and need not be swept by them.
    if redis.call('ZCARD', i) == 1 then redis.call('HSET', c, 's', '1') end
    drop_empty(c, i)
    return {0, unneeded(c, freed)}
  end
  redis.call('HSET', c, 'm', cmsgpack.pack(m))
  return {1, unneeded(c, freed)}
end

redis.register_function{function_name = 'rtmem_v2_checkpoint_skeleton', callback = skeleton, flags = {'no-writes'}}
-- Deleting must work when Redis is full.
redis.register_function{function_name = 'rtmem_v2_checkpoint_delete_thread', callback = delete_thread, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_shrink', callback = shrink, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_forget', callback = forget, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_forget_early', callback = forget_early, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_sweep', callback = sweep, flags = {'allow-oom'}}
