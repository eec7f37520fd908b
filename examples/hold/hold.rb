# hold.rb NAME SECONDS : work for some seconds under a lease, which "dlock hold" holds.

require 'json'

# Run a block under a lease.  It gets the token, and a function that says whether the lease is
# lost.  Answers :busy, :lost or :done.
def with_lease(name, *options)
  IO.popen(['dlock', 'hold', '--quiet', *options, name], 'r+') do |hold|
    held = hold.gets or return :busy
    rest = Thread.new { hold.read } # ends with the lease
    begin
      yield JSON.parse(held)['token'], -> { !rest.alive? }
    ensure
      hold.close_write # gives it back
      rest.join
    end
  end
  $?.success? ? :done : :lost
end

name, seconds = ARGV
outcome = with_lease(name) do |token, lost|
  puts "held #{token}"
  $stdout.flush
  (seconds.to_f * 10).to_i.times do
    break if lost.call

    sleep 0.1 # a step of the work
  end
end
puts outcome
