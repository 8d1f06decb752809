-- Reading: a checkpoint, a page of a listing, what the ancestors of a delta channel hold.

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

redis.register_function{function_name = 'rtmem_v2_checkpoint_get', callback = get, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_list_page', callback = list_page, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v2_checkpoint_delta_history', callback = delta_history, flags = {'no-writes'}}
