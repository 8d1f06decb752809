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
