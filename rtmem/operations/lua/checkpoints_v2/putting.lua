-- Putting: checkpoints, and writes of tasks.

-- The entries of a put, with the numbers its new pieces will have; nil if the base does not hold what it should.
local function resolve_entries(argv, last_arg, base, first)
  local inherited = {}
  if base then
    for k = 1, #base.entries, 4 do inherited[base.entries[k]] = k end
  end
  local entries = {}
  for at = 15, last_arg, 4 do
    local name, version, kind, data = argv[at], argv[at + 1], argv[at + 2], argv[at + 3]
    if kind == '=' then
      local k = inherited[name]
      -- A value that the base does not store cannot be taken over from it.
      if not k or base.entries[k + 1] ~= version or base.entries[k + 2] == '-' then return nil end
      kind, data = base.entries[k + 2], base.entries[k + 3]
    elseif kind == 'P' then
      kind, data = 'p', string.format('%d', first + tonumber(data))
    elseif kind == 'L' then
      kind = 'l'
      data = data:gsub('%+(%d+)', function(k) return string.format('%d', first + tonumber(k)) end)
    end
    local n = #entries
    entries[n + 1], entries[n + 2], entries[n + 3], entries[n + 4] = name, version, kind, data
  end
  return entries
end

-- Take a checkpoint out, with its writes; its pieces are added to gone.
local function take_out(c, i, member, gone, freed)
  local raw = redis.call('HGET', c, 'c' .. member)
  if raw then ranges_of(unpack_record(raw).entries, gone) end
  redis.call('HDEL', c, 'c' .. member)
  redis.call('ZREM', i, member)
  delete_writes(c, member, freed)
end

-- Writes that came before their checkpoint: it is here now. Those of older checkpoints die with a shallow put.
local function settle_early(c, raw, shallow, member, ns, freed)
  local early, waiting = cmsgpack.unpack(raw), {}
  for _, other in ipairs(early) do
    if shallow and other:sub(-#ns - 1) == '\0' .. ns and is_after(member, other) then
      delete_writes(c, other, freed)
    elseif other ~= member then
      waiting[#waiting + 1] = other
    end
  end
  if #waiting < #early then set_early(c, waiting) end
end

-- ARGV  1 'full' or 'shallow'  2 member  3 head field  4 parent member or ''  5 nonce  6 run_id  7 delta channels
--       8 base member or ''  9 base nonce or '' (then only '=' entries may be used)  10 ttl_ms or 0  11 fence or ''
--       12 body  13 metadata  14 number of entries
--       then per entry: name, version, kind, data;  then the number of large pieces, and their numbers (this
--       transaction has stored them already, and they must go if the put is refused);  then the number of oversized
--       pieces, and of each its number and the reference;  then the small pieces
--       kinds of entries: those above, and  '=' as in the base (same name and version)
--       P the k-th new piece (from 0)  L ranges, "+k:n" for new pieces, "a:n" for pieces of the base
-- Replies  {'ok', number of the first small piece, 'shrink' or '', 'new' or '', ids of pointers that are not needed any
--          more, in one string, when the thread was deleted lately or ''}: shrink if a full saver wrote here before, new
--          if the thread had no checkpoint. A deletion ends the pins of pointers that were there before it
--          {'stale'} send everything   {'late'} a shallow thread is further already   {'done'} this very put was stored
local function put(keys, argv)
  local c, i, d = keys[1], keys[2], keys[3]
  local shallow, member, head_field, parent = argv[1] == 'shallow', argv[2], argv[3], argv[4]
  local large_at = 15 + 4 * tonumber(argv[14])
  local oversized_at = large_at + 1 + tonumber(argv[large_at])
  local last_arg = oversized_at + 2 * tonumber(argv[oversized_at])
  -- Large pieces are there before this function is asked whether they may.
  local function refuse(reason)
    for k = large_at + 1, oversized_at - 1 do redis.call('HDEL', c, argv[k]) end
    if reason.err then error(reason) end
    return reason
  end
  local stored = redis.call('HMGET', c, 'v', 'n', 's', head_field, 'c' .. member, 'c' .. argv[8], 'e', 'm', 'f')
  local version, head, old_raw, base_raw = stored[1], stored[4], stored[5], stored[6]
  local solely_shallow = stored[3] or not version
  local newer = layout_error(version)
  if newer then return refuse(newer) end
  -- Sent again after a lost connection: what was stored must not be refused now, nor lose its large pieces.
  if old_raw and unpack_record(old_raw).nonce == argv[5] then return {'done'} end
  local grave = redis.call('GET', d)
  if grave and (not is_after(member, grave) or
      (parent ~= '' and not old_raw and redis.call('HEXISTS', c, 'c' .. parent) == 0)) then
    return refuse({err = 'RTMEM_DELETED a checkpoint of a run that began before the thread was deleted'})
  end
  if is_stale(stored[9], argv[11]) then
    return refuse({err = 'RTMEM_FENCED the thread is at fencing token ' .. stored[9]})
  end

  local base
  if argv[8] ~= '' then
    base = base_raw and unpack_record(base_raw)
    if not base or (argv[9] ~= '' and base.nonce ~= argv[9]) then return refuse({'stale'}) end
  end
  local first = tonumber(stored[2] or '1')
  local entries = resolve_entries(argv, large_at - 1, base, first)
  if not entries then return refuse({'stale'}) end
  if shallow and head and is_after(head, member) then
    -- A slower writer with an older id: the latest checkpoint stays.
    return refuse({'late'})
  end

  local fields = {'c' .. member, pack_record({
    parent = parent, nonce = argv[5], run_id = argv[6], delta = argv[7],
    body = argv[12], metadata = argv[13], entries = entries,
  })}
  local function set(field, value)
    local n = #fields
    fields[n + 1], fields[n + 2] = field, value
  end
  if not version then set('v', LAYOUT) end
  if not head or is_after(member, head) then set(head_field, member) end
  if shallow and not version then set('s', '1') end
  if argv[11] ~= '' and stored[9] ~= argv[11] then set('f', argv[11]) end
  if #argv > last_arg then set('n', string.format('%d', first + #argv - last_arg)) end
  for k = 1, #argv - last_arg do set(string.format('%d', first + k - 1), argv[last_arg + k]) end
  for k = oversized_at + 1, last_arg, 2 do
    set(argv[k], argv[k + 1])
    set('o' .. argv[k + 1]:sub(2), argv[k])
  end
  for at = 1, #fields, CHUNK do
    redis.call('HSET', c, unpack(fields, at, math.min(at + CHUNK - 1, #fields)))
  end
  local is_new = not old_raw and redis.call('ZADD', i, 0, member) == 1 and redis.call('ZCARD', i) == 1
  if not shallow and stored[3] then redis.call('HDEL', c, 's') end
  if stored[8] then tell_sweep(c, entries) end

  local gone, freed = {}, {}
  if old_raw then ranges_of(unpack_record(old_raw).entries, gone) end
  if shallow and head and head ~= member then take_out(c, i, head, gone, freed) end
  if shallow and solely_shallow then
    if #gone > 0 then delete_pieces(c, minus(normal(gone), normal(ranges_of(entries))), math.huge, freed) end
  else
    add_trash(c, gone)
  end
  if stored[7] then settle_early(c, stored[7], shallow, member, head_field:sub(2), freed) end
  expire(c, i, argv[10])
  return {
    'ok', string.format('%d', first), shallow and not solely_shallow and 'shrink' or '',
    is_new and 'new' or '', unneeded(c, freed), time_of(grave),
  }
end

-- ARGV  1 'full' or 'shallow'  2 member  3 head field  4 stamp  5 ttl_ms or 0  6 fence or ''
--       7 '1': the caller knows that the checkpoint was stored; or references that it put here a moment ago and that lead
--         to nothing, in one string: what has one of them is taken  8 task_id  9 task_path
--       then per write: idx, channel, value.  idx < 0: the latest wins; otherwise the first does.
-- Replies  {'ok', ids of pointers that are not needed (any more), in one string, when the thread was deleted or ''} as
--          put   {'gone'} nothing was stored
local function put_writes(keys, argv)
  local c, i, d = keys[1], keys[2], keys[3]
  local member, task_id = argv[2], argv[8]
  local version, grave = check_thread(c), nil
  local known = redis.call('HEXISTS', c, 'c' .. member) == 1
  if not known then
    grave = redis.call('GET', d)
    if grave and not is_after(member, grave) then
      error({err = 'RTMEM_DELETED writes of a run that began before the thread was deleted'})
    end
    local head = redis.call('HGET', c, argv[3])
    -- The checkpoint was there and is gone: expired, pruned or replaced. Its writes must not bring it back.
    if argv[7] == '1' or (argv[1] == 'shallow' and head and is_after(head, member)) then return {'gone'} end
  end
  local seen = check_fence(c, argv[6])
  if argv[6] ~= '' and seen ~= argv[6] then redis.call('HSET', c, 'f', argv[6]) end

  local field = 'w' .. member .. '\0' .. task_id
  local tasks = tasks_of(c, member)
  local raw = redis.call('HGET', c, field)
  local writes = raw and cmsgpack.unpack(raw) or {argv[9]}
  if not raw then tasks[#tasks + 1] = task_id end
  local place, freed = {}, {}
  for at = 2, #writes, 3 do place[writes[at]] = at end
  for at = 10, #argv, 3 do
    local idx, value, position = argv[at], argv[at + 2], place[argv[at]]
    local old = position and writes[position + 2]
    local taken = not position or idx:sub(1, 1) == '-' or (is_reference(old) and argv[7]:find(old, 1, true))
    if not position then
      position = #writes + 1
      place[idx] = position
    end
    if taken then writes[position], writes[position + 1], writes[position + 2] = idx, argv[at + 1], value end
    -- The very same value: this command was sent again after a lost connection.
    if taken and old and old ~= value and is_reference(old) then dismiss(c, old, freed) end
    if is_reference(value) and old ~= value then
      if taken then
        refer(c, value, 'w')
        redis.call('HSET', c, 'y', '1')
      else
        freed[#freed + 1] = value:sub(2)
      end
    end
  end
  tasks[1] = argv[4]
  redis.call('HSET', c, field, cmsgpack.pack(writes), 't' .. member, cmsgpack.pack(tasks))
  if not version then redis.call('HSET', c, 'v', LAYOUT) end
  if not known then
    local early, listed = early_members(c), false
    for _, other in ipairs(early) do listed = listed or other == member end
    if not listed then
      early[#early + 1] = member
      set_early(c, early)
    end
  end
  expire(c, i, argv[5])
  return {'ok', unneeded(c, freed), time_of(grave or redis.call('GET', d))}
end

redis.register_function('rtmem_v2_checkpoint_put', put)
redis.register_function('rtmem_v2_checkpoint_put_writes', put_writes)
