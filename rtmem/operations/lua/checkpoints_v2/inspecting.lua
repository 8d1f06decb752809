-- Inspecting, for `rtmem doctor threads`.

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
