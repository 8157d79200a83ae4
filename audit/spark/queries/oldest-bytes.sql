-- How long ago was the oldest data of each topic verified in full, and how much is older than 30 days?
SELECT cluster, topic, min(verified_at) FILTER (WHERE segments.depth <> 'quick') AS oldest,
       sum(size_bytes) AS bytes,
       coalesce(sum(size_bytes) FILTER (WHERE verified_at < started_at - INTERVAL 30 DAYS), 0) AS bytes_over_30_days,
       coalesce(sum(size_bytes) FILTER (WHERE segments.depth = 'quick'), 0) AS bytes_never_in_full
FROM segments JOIN last_audit USING (audit_id)
GROUP BY cluster, topic
ORDER BY oldest NULLS FIRST, bytes DESC
