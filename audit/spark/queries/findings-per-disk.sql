-- How many findings does each disk have, week by week? Notes are left out.
SELECT CAST(date_trunc('week', started_at) AS date) AS week, cluster, broker, log_dir,
       count_if(severity = 'blocking') AS blocking, count_if(severity = 'damage') AS damage,
       count_if(severity = 'repairable') AS repairable
FROM findings JOIN runs USING (audit_id)
WHERE severity <> 'note' AND broker <> ''
GROUP BY ALL
ORDER BY week DESC, blocking DESC, damage DESC, cluster, broker, log_dir
