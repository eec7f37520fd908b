# lease.rb: work under a lease in Rails, over ActiveRecord.  Copy it into lib/ or app/models.
#
#   Lease.hold('report', ttl: 60, wait: 10) do |lease|
#     records.each { |record| lease.check!; record.work }     # raises Lease::Lost
#   end or logger.info('another machine does it')
#
# Answers false if the lease is not free.  A thread renews it every third of the ttl, by another
# connection of the pool, also while the work is in a transaction.  What you write under the
# lease you can guard: lease.guard! in transaction { } raises Lease::Lost, and nobody else gets
# the lease before the commit.

require 'active_record'
require 'securerandom'
require 'socket'

class Lease
  class Lost < StandardError; end

  def self.hold(name, ttl: 60, wait: 0)
    lease = new(name, ttl)
    return false unless lease.acquire(wait)

    begin
      yield lease
      true
    ensure
      lease.release
    end
  end

  attr_reader :name, :owner, :token, :until

  def initialize(name, ttl)
    @name = name
    @ttl = ttl
    @owner = "#{Socket.gethostname}/#{Process.pid}/#{SecureRandom.hex(8)}"
  end

  def acquire(wait)
    asked = now
    @token = ask('dlock_acquire(?, ?, ?, ?)', @name, @owner, @ttl, wait) or return false
    @until = asked + @ttl
    # after a wait nobody knows when it was granted
    return false unless wait.zero? || renew

    @over = Queue.new
    @thread = Thread.new { keep }
    true
  end

  def release
    @over.close
    @thread.join
    yes?(ask('dlock_release(?, ?, ?)', @name, @owner, @token))
  end

  def lost? = now >= @until
  def check! = lost? && raise(Lost, @name)

  def guard!
    connection = ActiveRecord::Base.connection
    postgres = connection.adapter_name == 'PostgreSQL'
    call = postgres ? 'SELECT dlock_guard' : 'CALL dlock.guard'
    connection.execute(ActiveRecord::Base.sanitize_sql_array(["#{call}(?, ?, ?)", @name, @owner, @token]))
  rescue ActiveRecord::StatementInvalid => e
    raise e unless code_of(e.cause).to_s == (postgres ? '55L01' : '1644')

    raise Lost, @name
  end

  private

  # Of PG::Error, or of Mysql2::Error.
  def code_of(error)
    error.respond_to?(:result) ? error.result&.error_field(PG::Result::PG_DIAG_SQLSTATE) : error.error_number
  end

  def now = Process.clock_gettime(Process::CLOCK_BOOTTIME)
  def yes?(answer) = [true, 1].include?(answer)

  def renew
    asked = now
    renewed = yes?(ask('dlock_renew(?, ?, ?, ?)', @name, @owner, @ttl, @token))
    @until = renewed ? asked + @ttl : 0
    renewed
  end

  def keep
    until over_within(@ttl / 3.0)
      begin
        ActiveRecord::Base.connection_pool.with_connection { return unless renew }
      rescue ActiveRecord::ActiveRecordError
        # the next one may find a connection that works
      end
    end
  end

  def over_within(seconds)
    deadline = now + seconds
    sleep 0.05 until @over.closed? || now >= deadline
    @over.closed?
  end

  # Not by the query cache, which would answer without the server.
  def ask(call, *arguments)
    connection = ActiveRecord::Base.connection
    connection.uncached { connection.select_value(ActiveRecord::Base.sanitize_sql_array(["SELECT #{call}", *arguments])) }
  end
end
