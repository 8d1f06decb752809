#!lua name=rtmem_v2_checkpoints

--[[ Checkpoints of one thread, full and shallow. Every function is one atomic step and names all its keys.

KEYS  1  c  hash    everything that is stored of the thread, see below
      2  i  zset    one member per checkpoint, score 0, so that Redis keeps them in the order of their bytes
      3  d  string  tombstone: no member up to this one may be written any more; behind its last byte, which is 255, the
                    time of the deletion, Unix time in ms

A *member* is checkpoint_id NUL checkpoint_ns, both escaped so that NUL occurs only there and the order is kept.

Fields of c
  v                   version of this layout
  n                   number of the next piece; numbers are never used twice
  h<ns>               member of the latest checkpoint of a namespace
  c<member>           record of a checkpoint: {parent, nonce, run_id, delta, body, metadata, entries}
  t<member>           its pending writes: {stamp, task_id, task_id, ...}
  w<member>NUL<task>  the writes of one task: {task_path, idx, channel, value, idx, channel, value, ...}
  <number>            a piece: the bytes of a channel value, or of some neighbours of a list. Numbers from 2^51 on are
                      random and belong to large pieces, which do not go through Lua: Lua hashes every byte of every
                      string it is given, 2 ms per MB during which the server does nothing else. They are written by
                      HSET in the transaction of the put and read by HMGET after a get. Numbers from 2^52 + 2^51 on
                      belong to oversized pieces, whose bytes lie at a pointer (pointers_v2.lua): the field holds the
                      reference, "@" and the pointer's id, and no other field holds the same
  o<id>               number of the piece, or 'w' for pending writes, that refers to this pointer. The thread pins it;
                      a pointer that it pins and that has no such field is not needed
  y                   present once pending writes have referred to a pointer
  e                   members whose writes came before the checkpoint itself
  f                   highest fencing token seen
  s                   '1' while only shallow savers have written: then a piece belongs to one checkpoint at a time
  g                   present while no sweep has begun since the last copy into this thread did
  x                   ranges of pieces that deleted checkpoints referred to: garbage unless another refers to them
  m                   state of a sweep that is under way: {phase, cursor, live ranges, doomed ranges}

An entry describes one channel, four values in a row: name, version, kind, data
  -  no value      i  the value itself      p  number of the piece that holds it
  l  a list, as ranges of pieces in order: "17:2500,2519:1" is 17..2516 and 2519

A new checkpoint may refer to pieces that are already there only by naming a *base*: a checkpoint, by member and
nonce, that refers to them. If the base is still what the caller knows, all its pieces exist; otherwise the caller is
told "stale" and sends the values. So no reference can dangle, and nothing has to be counted.
]]

local LAYOUT = 1
local CHUNK = 2000        -- arguments per command: Lua's stack ends at about 8000
local LARGE = 2 ^ 51      -- numbers of large pieces start here
local OFFLOADED = 2 ^ 52 + 2 ^ 51 -- numbers of oversized pieces, whose bytes lie at a pointer
local SCAN_MAX = 2000     -- index entries one call may look at
local SWEEP_RECORDS = 100 -- records one step of a sweep reads
local SWEEP_PIECES = 2000 -- pieces one step of a sweep deletes

local function layout_error(version)
  if version and tonumber(version) > LAYOUT then
    return {err = 'RTMEM_LAYOUT this thread is stored in layout ' .. version .. ', this library knows up to ' .. LAYOUT}
  end
end

local function check_thread(c)
  local version = redis.call('HGET', c, 'v')
  local newer = layout_error(version)
  if newer then error(newer) end
  return version
end

-- Whether a > b byte by byte. Lua's own comparison follows the server's locale.
local function is_after(a, b)
  local shorter = math.min(#a, #b)
  for at = 1, shorter do
    local x, y = a:byte(at), b:byte(at)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local function is_stale(seen, fence)
  return fence ~= '' and seen and tonumber(seen) > tonumber(fence)
end

local function check_fence(c, fence)
  local seen = redis.call('HGET', c, 'f')
  if is_stale(seen, fence) then error({err = 'RTMEM_FENCED the thread is at fencing token ' .. seen}) end
  return seen
end

-- When a thread was deleted, as far as that is still known.
local function time_of(grave) return grave and grave:match('\255(%d+)$') or '' end

local function expire(c, i, ttl_ms)
  if ttl_ms ~= '0' then
    redis.call('PEXPIRE', c, ttl_ms)
    redis.call('PEXPIRE', i, ttl_ms)
  end
end

local function unpack_record(raw)
  local r = cmsgpack.unpack(raw)
  return {parent = r[1], nonce = r[2], run_id = r[3], delta = r[4], body = r[5], metadata = r[6], entries = r[7]}
end

local function read_record(c, member)
  local raw = redis.call('HGET', c, 'c' .. member)
  if not raw then error({err = 'RTMEM_CORRUPT the index lists a checkpoint without record'}) end
  return unpack_record(raw)
end

local function pack_record(r)
  return cmsgpack.pack({r.parent, r.nonce, r.run_id, r.delta, r.body, r.metadata, r.entries})
end

-- Ranges --------------------------------------------------------------------

local function parse_ranges(text, into)
  local ranges = into or {}
  for start, count in text:gmatch('(%d+):(%d+)') do
    ranges[#ranges + 1] = {tonumber(start), tonumber(count)}
  end
  return ranges
end

local function format_ranges(ranges)
  local parts = {}
  for at, range in ipairs(ranges) do parts[at] = string.format('%d:%d', range[1], range[2]) end
  return table.concat(parts, ',')
end

-- Sorted and without overlaps.
local function normal(ranges)
  table.sort(ranges, function(a, b) return a[1] < b[1] end)
  local merged = {}
  for _, range in ipairs(ranges) do
    local last = merged[#merged]
    if last and range[1] <= last[1] + last[2] then
      last[2] = math.max(last[2], range[1] + range[2] - last[1])
    else
      merged[#merged + 1] = {range[1], range[2]}
    end
  end
  return merged
end

-- What is in a and not in b; both normal.
local function minus(a, b)
  local left, at = {}, 1
  for _, range in ipairs(a) do
    local from, till = range[1], range[1] + range[2]
    while b[at] and b[at][1] + b[at][2] <= from do at = at + 1 end
    local k = at
    while b[k] and b[k][1] < till do
      if b[k][1] > from then left[#left + 1] = {from, b[k][1] - from} end
      from = math.max(from, b[k][1] + b[k][2])
      k = k + 1
    end
    if from < till then left[#left + 1] = {from, till - from} end
  end
  return left
end

-- Every piece the entries refer to.
local function ranges_of(entries, into)
  local ranges = into or {}
  for at = 1, #entries, 4 do
    local kind = entries[at + 2]
    if kind == 'p' then
      ranges[#ranges + 1] = {tonumber(entries[at + 3]), 1}
    elseif kind == 'l' then
      parse_ranges(entries[at + 3], ranges)
    end
  end
  return ranges
end

-- Whether a stored piece or write is a reference to a pointer: no serialised value begins with "@".
local function is_reference(value) return #value == 30 and value:sub(1, 4) == '@mc_' end

local function refer(c, value, holder) redis.call('HSET', c, 'o' .. value:sub(2), holder) end

-- A reference goes: its pointer need not be pinned any more.
local function dismiss(c, value, freed)
  redis.call('HDEL', c, 'o' .. value:sub(2))
  freed[#freed + 1] = value:sub(2)
end

-- The ids of freed in one string, without those that were referred to again.
local function unneeded(c, freed)
  local ids = {}
  for _, id in ipairs(freed) do
    if redis.call('HEXISTS', c, 'o' .. id) == 0 then ids[#ids + 1] = id end
  end
  return table.concat(ids)
end

-- The pointers that are not needed any more are added to freed.
local function delete_pieces(c, ranges, most, freed)
  local fields, left = {}, {}
  for _, range in ipairs(ranges) do
    local take = math.min(range[2], most - #fields)
    for number = range[1], range[1] + take - 1 do
      fields[#fields + 1] = string.format('%d', number)
      if number >= OFFLOADED then
        local value = redis.call('HGET', c, fields[#fields])
        if value then dismiss(c, value, freed) end
      end
    end
    if take < range[2] then left[#left + 1] = {range[1] + take, range[2] - take} end
  end
  for at = 1, #fields, CHUNK do
    redis.call('HDEL', c, unpack(fields, at, math.min(at + CHUNK - 1, #fields)))
  end
  return left
end

local function add_trash(c, ranges)
  if #ranges == 0 then return end
  local old = redis.call('HGET', c, 'x')
  if old then parse_ranges(old, ranges) end
  redis.call('HSET', c, 'x', format_ranges(normal(ranges)))
end

-- A sweep that is under way must learn of every record that is written meanwhile.
local function tell_sweep(c, entries)
  local m = cmsgpack.unpack(redis.call('HGET', c, 'm'))
  m[3] = format_ranges(normal(ranges_of(entries, parse_ranges(m[3]))))
  redis.call('HSET', c, 'm', cmsgpack.pack(m))
end

-- Writes --------------------------------------------------------------------

local function early_members(c)
  local early = redis.call('HGET', c, 'e')
  return early and cmsgpack.unpack(early) or {}
end

local function set_early(c, members)
  if #members == 0 then redis.call('HDEL', c, 'e') else redis.call('HSET', c, 'e', cmsgpack.pack(members)) end
end

local function delete_writes(c, member, freed)
  local tasks = redis.call('HGET', c, 't' .. member)
  if not tasks then return end
  local list = cmsgpack.unpack(tasks)
  local fields = {'t' .. member}
  local may_refer = redis.call('HEXISTS', c, 'y') == 1
  for at = 2, #list do
    local field = 'w' .. member .. '\0' .. list[at]
    fields[#fields + 1] = field
    local raw = may_refer and redis.call('HGET', c, field)
    local writes = raw and cmsgpack.unpack(raw) or {}
    for k = 4, #writes, 3 do
      if is_reference(writes[k]) then dismiss(c, writes[k], freed) end
    end
  end
  for at = 1, #fields, CHUNK do
    redis.call('HDEL', c, unpack(fields, at, math.min(at + CHUNK - 1, #fields)))
  end
end

-- Flat: task_id, task_path, idx, channel, value, task_id, ...
local function read_writes(c, member, tasks)
  local flat = {}
  for at = 2, #tasks do
    local task_id = tasks[at]
    local raw = redis.call('HGET', c, 'w' .. member .. '\0' .. task_id)
    if not raw then error({err = 'RTMEM_CORRUPT the writes of task ' .. task_id .. ' are gone'}) end
    local writes = cmsgpack.unpack(raw)
    for k = 2, #writes, 3 do
      local n = #flat
      flat[n + 1], flat[n + 2] = task_id, writes[1]
      flat[n + 3], flat[n + 4], flat[n + 5] = writes[k], writes[k + 1], writes[k + 2]
    end
  end
  return flat
end

local function tasks_of(c, member)
  local tasks = redis.call('HGET', c, 't' .. member)
  return tasks and cmsgpack.unpack(tasks) or {''}
end

-- Reading -------------------------------------------------------------------

-- The pieces of the entries in order; false in the place of a large one, the reference in that of an oversized one.
local function read_pieces(c, entries)
  local numbers, places, pieces, n = {}, {}, {}, 0
  for _, range in ipairs(ranges_of(entries)) do
    for number = range[1], range[1] + range[2] - 1 do
      n = n + 1
      pieces[n] = false
      if number < LARGE or number >= OFFLOADED then
        numbers[#numbers + 1], places[#places + 1] = string.format('%d', number), n
      end
    end
  end
  for at = 1, #numbers, CHUNK do
    local found = redis.call('HMGET', c, unpack(numbers, at, math.min(at + CHUNK - 1, #numbers)))
    for k = 1, #found do
      if not found[k] then error({err = 'RTMEM_CORRUPT piece ' .. numbers[at + k - 1] .. ' is gone'}) end
      pieces[places[at + k - 1]] = found[k]
    end
  end
  return pieces
end

-- {member, nonce, parent, body, metadata, stamp, entries, pieces, writes}
local function read_tuple(c, member, raw)
  local r = unpack_record(raw)
  local tasks = tasks_of(c, member)
  return {
    member, r.nonce, r.parent, r.body, r.metadata, tasks[1],
    r.entries, read_pieces(c, r.entries), read_writes(c, member, tasks),
  }
end

-- KEYS  1 c   ARGV  1 member or ''   2 head field   3 nonce of the checkpoint that the caller holds   4 its stamp
-- Replies  nil, a tuple, or {'same', stamp} and, if the stamp is another, the writes
local function get(keys, argv)
  local c = keys[1]
  check_thread(c)
  local member = argv[1]
  if member == '' then member = redis.call('HGET', c, argv[2]) end
  if not member then return false end
  local raw = redis.call('HGET', c, 'c' .. member)
  if not raw then
    if argv[1] == '' then error({err = 'RTMEM_CORRUPT the latest checkpoint has no record'}) end
    return false
  end
  if argv[3] and unpack_record(raw).nonce == argv[3] then
    local tasks = tasks_of(c, member)
    return {'same', tasks[1], tasks[1] ~= argv[4] and read_writes(c, member, tasks) or nil}
  end
  return read_tuple(c, member, raw)
end

-- Putting -------------------------------------------------------------------

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
--       7 '1': the caller knows that the checkpoint was stored  8 task_id  9 task_path
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
    local taken = not position or idx:sub(1, 1) == '-'
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
  return {'ok', unneeded(c, freed), time_of(grave)}
end

-- Listing -------------------------------------------------------------------

-- Whether the record may satisfy the filter. Only plain values of a plain msgpack map are compared; the caller, who
-- can decode everything, has the last word.
local function may_match(metadata, filter)
  if #filter == 0 or metadata:sub(1, 1) ~= 'm' then return true end
  local readable, map = pcall(cmsgpack.unpack, metadata:sub(2))
  if not readable or type(map) ~= 'table' then return true end
  for at = 1, #filter, 2 do
    local value = map[filter[at]]
    if value == nil or (type(value) == 'string' and value ~= filter[at + 1]) then return false end
  end
  return true
end

-- Newest first.
-- ARGV  1 start: '+' or '(' and a member   2 '1': only namespace 3   3 NUL and namespace   4 checkpoint id, escaped, or ''
--       5 tuples per page  6 bytes per page  then string filters: key, value
-- Replies  {cursor or '', tuple, tuple, ...}
local function list_page(keys, argv)
  local c, i = keys[1], keys[2]
  check_thread(c)
  local start, suffix, want, bytes_left = argv[1], argv[3], tonumber(argv[5]), tonumber(argv[6])
  local filter = {}
  for at = 7, #argv do filter[#filter + 1] = argv[at] end
  local stop = '-'
  if argv[4] ~= '' then
    start, stop = '[' .. argv[4] .. '\1', '[' .. argv[4] .. '\0'
  end
  local page, looked = {''}, 0
  while true do
    local members = redis.call('ZREVRANGEBYLEX', i, start, stop, 'LIMIT', 0, 200)
    if #members == 0 then return page end
    for _, member in ipairs(members) do
      start = '(' .. member
      looked = looked + 1
      if argv[2] == '0' or member:sub(-#suffix) == suffix then
        local raw = redis.call('HGET', c, 'c' .. member)
        if not raw then error({err = 'RTMEM_CORRUPT the index lists a checkpoint without record'}) end
        local r = unpack_record(raw)
        if may_match(r.metadata, filter) then
          local tuple = read_tuple(c, member, raw)
          page[#page + 1] = tuple
          bytes_left = bytes_left - #raw
          for _, piece in ipairs(tuple[8]) do bytes_left = bytes_left - (piece and #piece or 0) end
        end
      end
      if #page > want or bytes_left <= 0 or looked >= SCAN_MAX then
        page[1] = start
        return page
      end
    end
  end
end

-- Deleting ------------------------------------------------------------------

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

-- Delta channels ------------------------------------------------------------

-- Walk from the parent of a checkpoint to the root, collecting the writes of some channels; each channel stops at
-- the first ancestor that stores a value of it.
-- ARGV  1 member or ''   2 head field   then channels
-- Replies  {writes of the parent, writes of its parent, ..., {channel, kind, data, pieces, channel, ...}}
local function delta_history(keys, argv)
  local c = keys[1]
  check_thread(c)
  local member = argv[1] ~= '' and argv[1] or redis.call('HGET', c, argv[2])
  local wanted, left = {}, 0
  for at = 3, #argv do wanted[argv[at]], left = true, left + 1 end
  local reply, seeds = {}, {}
  local raw = member and redis.call('HGET', c, 'c' .. member)
  member = raw and unpack_record(raw).parent or ''
  while member ~= '' and left > 0 do
    raw = redis.call('HGET', c, 'c' .. member)
    if not raw then break end
    local r = unpack_record(raw)
    local writes, kept = read_writes(c, member, tasks_of(c, member)), {}
    for at = 1, #writes, 5 do
      if wanted[writes[at + 3]] then
        for k = at, at + 4 do kept[#kept + 1] = writes[k] end
      end
    end
    reply[#reply + 1] = kept
    for at = 1, #r.entries, 4 do
      local channel, kind = r.entries[at], r.entries[at + 2]
      if wanted[channel] and kind ~= '-' then
        wanted[channel], left = nil, left - 1
        local n = #seeds
        seeds[n + 1], seeds[n + 2], seeds[n + 3] = channel, kind, r.entries[at + 3]
        seeds[n + 4] = read_pieces(c, {channel, '', kind, r.entries[at + 3]})
      end
    end
    member = r.parent
  end
  reply[#reply + 1] = seeds
  return reply
end

-- Copying -------------------------------------------------------------------

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

-- Inspecting ----------------------------------------------------------------

-- Some fields of the hash as they are, for `rtmem doctor threads`. Nothing is assumed to be in order.
-- ARGV  1 HSCAN cursor  2 about how many
-- Replies  {cursor, field, length, detail, ...}; detail of a record: {parent, ranges, run_id}, of tasks: their ids,
--          of early members: they, of a sweep: {phase, cursor, live ranges, doomed ranges}; of writes: the references
--          among them; of short fields and of references: the value
local function inspect(keys, argv)
  local scanned = redis.call('HSCAN', keys[1], argv[1], 'COUNT', argv[2])
  local reply = {scanned[1]}
  for at = 1, #scanned[2], 2 do
    local field, value = scanned[2][at], scanned[2][at + 1]
    local kind, detail = field:sub(1, 1), ''
    if kind == 'c' or kind == 't' or kind == 'e' or kind == 'm' then
      local readable, list = pcall(cmsgpack.unpack, value)
      if readable and kind == 'c' then
        readable, list = pcall(function()
          return {list[1], format_ranges(ranges_of(list[7])), list[3]}
        end)
      end
      detail = readable and list or false
    elseif kind == 'w' then
      local readable, list = pcall(cmsgpack.unpack, value)
      detail = {}
      for k = 4, readable and #list or 0, 3 do
        if is_reference(list[k]) then detail[#detail + 1] = list[k] end
      end
    elseif not kind:match('%d') or is_reference(value) then
      detail = value
    end
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = field, #value, detail
  end
  return reply
end

redis.register_function{function_name = 'rtmem_v2_checkpoint_inspect', callback = inspect, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_get', callback = get, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_list_page', callback = list_page, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_skeleton', callback = skeleton, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_delta_history', callback = delta_history, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_export', callback = export, flags = {'no-writes'}}
redis.register_function('rtmem_v2_checkpoint_put', put)
redis.register_function('rtmem_v2_checkpoint_put_writes', put_writes)
redis.register_function('rtmem_v2_checkpoint_reserve', reserve)
redis.register_function('rtmem_v2_checkpoint_import', import)
-- Deleting must work when Redis is full.
redis.register_function{function_name = 'rtmem_v2_checkpoint_delete_thread', callback = delete_thread, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_shrink', callback = shrink, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_forget', callback = forget, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_forget_early', callback = forget_early, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_sweep', callback = sweep, flags = {'allow-oom'}}
